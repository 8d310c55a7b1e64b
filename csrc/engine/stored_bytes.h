// A byte range of a shard -> a JPEG or PNG, opened and found to be of the size that the index has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/image.h"
#include "base/status.h"
#include "io/file.h"
#include "jpeg/decode/jpeg.h"
#include "png/png_decoder.h"

namespace fastpipe {

// One file at a time; a thread keeps one and reuses its memory. May throw only what allocation throws.
class StoredBytes {
 public:
  // Reads the bytes.
  Status read(const File& file, std::uint64_t offset, std::uint32_t size);

  // Takes the bytes of a JPEG that are in memory already, and stay there.
  void borrow(const std::uint8_t* data, std::size_t size) {
    data_ = data;
    size_ = size;
  }

  // Refuses what was read if its XXH3-64 is another one.
  Status check(std::uint64_t expected) const;

  // Read the header of what was read; refuse a picture that is not of this size. The bytes serve one open each.
  Status open(Size expected, JpegDecoder* decoder) const;
  Status open(Size expected, PngDecoder* decoder);

  // Lets go of memory that only a giant picture needs.
  void give_back() { give_back_if_giant(&bytes_); }

 private:
  std::vector<std::uint8_t> bytes_;
  const std::uint8_t* data_ = nullptr;  // bytes_, or what was borrowed
  std::size_t size_ = 0;
};

}  // namespace fastpipe
