// A byte range of a shard -> the whole picture in RGB, on the calling thread.
#pragma once

#include <cstdint>

#include "base/image.h"
#include "base/status.h"
#include "engine/stored_jpeg.h"
#include "io/file.h"
#include "jpeg/decode/jpeg_rows.h"

namespace fastpipe {

// Writes decoded rows into `out`, without the fourth byte. `out` must live as long as the sink is used.
RowSink rgb_rows(const PixelSpan* out);

// A thread's scratch: reads and decodes one picture at a time and reuses its memory.
class PictureReader {
 public:
  // `out` has the size that the index says. Never throws.
  Status run(const File& file, std::uint64_t offset, std::uint32_t size, const PixelSpan& out) noexcept;

 private:
  Status fill(const File& file, std::uint64_t offset, std::uint32_t size, const PixelSpan& out);

  StoredJpeg jpeg_;
};

}  // namespace fastpipe
