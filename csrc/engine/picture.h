// A byte range of a shard -> the whole picture, or the whole mask, on the calling thread.
#pragma once

#include <cstdint>

#include "base/image.h"
#include "base/row_sink.h"
#include "base/status.h"
#include "engine/mask_row.h"
#include "engine/stored_bytes.h"
#include "io/file.h"

namespace fastpipe {

// Writes decoded rows into `out`, as pixels of form.bytes(). `out` must live as long as the sink is used.
RowSink rows_into(const PixelSpan* out, PixelForm form);

// A thread's scratch: reads and decodes one picture at a time and reuses its memory.
class PictureReader {
 public:
  // `out` has the size that the index says. Never throw.
  Status run(const File& file, std::uint64_t offset, std::uint32_t size, const PixelSpan& out, PixelForm form) noexcept;
  Status run(const File& file, std::uint64_t offset, std::uint32_t size, const IdSpan& out) noexcept;

 private:
  template <typename Fill>
  Status guarded(const File& file, std::uint64_t offset, std::uint32_t size, Size out, const Fill& fill) noexcept;

  StoredBytes stored_;
  PictureDecoder decoder_;
  MaskRow mask_;
};

}  // namespace fastpipe
