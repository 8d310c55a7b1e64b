// A byte range of a shard -> its JPEG, opened and found to be of the size that the index has.
#pragma once

#include <cstdint>
#include <vector>

#include "base/image.h"
#include "base/status.h"
#include "io/file.h"
#include "jpeg/decode/jpeg.h"

namespace fastpipe {

// One JPEG at a time; a thread keeps one and reuses its memory. May throw only what allocation throws.
class StoredJpeg {
 public:
  // Reads the bytes.
  Status read(const File& file, std::uint64_t offset, std::uint32_t size);

  // Refuses what was read if its XXH3-64 is another one.
  Status check(std::uint64_t expected) const;

  // Reads the header of what was read; refuses a picture that is not of this size.
  Status open(Size expected);

  // Once an open; see JpegDecoder.
  Status decode(int denominator, Rect region, RowSink sink) { return decoder_.decode(denominator, region, sink); }

  // Lets go of memory that only a giant picture needs.
  void give_back() { give_back_if_giant(&bytes_); }

 private:
  std::vector<std::uint8_t> bytes_;
  JpegDecoder decoder_;
};

}  // namespace fastpipe
