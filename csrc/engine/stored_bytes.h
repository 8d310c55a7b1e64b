// A byte range of a shard, or an image in memory -> a picture or mask, opened and found to be of the size that is
// expected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/image.h"
#include "base/status.h"
#include "engine/picture_decoder.h"
#include "io/file.h"
#include "png/png_decoder.h"

namespace fastpipe {

// A picture of so many bytes may be a KEY.tif, of which only the tiles are read that a crop touches.
constexpr std::uint32_t kTiledBytes = 1 << 20;

// One file at a time; a thread keeps one and reuses its memory. May throw only what allocation throws.
class StoredBytes {
 public:
  // Reads the bytes.
  Status read(const File& file, std::uint64_t offset, std::uint32_t size);

  // Of a KEY.fpc: reads its header, and more bytes once it is known which; others may not be looked at. Of a KEY.tif:
  // reads its header; its decoder reads the tiles. Of anything else the first reads all. The file must stay open.
  Status read_head(const File& file, std::uint64_t offset, std::uint32_t size);
  Status read_more(CoefficientDecoder::Needed needed);

  // Takes a picture that others hold, until the next read or borrow.
  void borrow(const std::uint8_t* data, std::size_t size);

  // The first of the bytes that were read or borrowed.
  const std::uint8_t* data() const { return data_; }

  // Whether all bytes of the image at hand are there.
  bool is_whole() const { return known_ == size_; }

  // How many bytes were read of the image at hand.
  std::size_t bytes_read() const { return bytes_read_; }

  // Refuses what was read if its XXH3-64 is another one. Of a picture of which only the header was read, reads the
  // whole file for it, piece by piece.
  Status check(std::uint64_t expected);

  // Read the header of what was read; refuse a picture that is not of this size.
  Status open(Size expected, PictureDecoder* decoder);
  Status open(Size expected, PngDecoder* decoder) const;

  // Lets go of memory that only a giant picture needs.
  void give_back() { give_back_if_giant(&room_); }

 private:
  Status begin(const File& file, std::uint64_t offset, std::size_t size, std::size_t room);
  static Status read_part(void* context, std::uint64_t first, std::uint8_t* out, std::size_t count);
  Status read_range(std::size_t first, std::size_t end);

  std::vector<std::uint8_t> room_;      // larger than what it holds
  const File* file_ = nullptr;          // of what was read
  std::uint64_t offset_ = 0;            // in the file
  const std::uint8_t* data_ = nullptr;  // room_, or memory of others
  std::size_t size_ = 0;                // of the image at hand
  std::size_t known_ = 0;               // how many of its first bytes are there
  std::size_t bytes_read_ = 0;
};

}  // namespace fastpipe
