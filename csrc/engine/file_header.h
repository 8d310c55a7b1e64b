// An open file and a byte range -> what the picture in it says of itself, from as few of its bytes as possible.
#pragma once

#include <cstdint>

namespace fastpipe {

// Mirrored by numpy through the bindings, so: plain data.
struct FileHeader {
  std::int32_t error;  // errno of a read that failed; 0: none
  std::uint16_t width;
  std::uint16_t height;
  std::uint8_t channels;  // 1, 3 or 4: gray with alpha counts as 4
  std::uint8_t bits;      // of a channel: 8 or 16
  // 1: what the engine decodes: a PNG, or a JPEG that is baseline, of one scan, gray or of three components of 8 bits.
  // 0: anything else, or something odd in the header; all but `error` are 0 then.
  std::uint8_t plain;
};

// Walks a JPEG's segments up to the scan's header, a PNG's chunks up to its pixels. `offset` and `size` are of the
// picture in the file.
FileHeader read_file_header(int file, std::uint64_t offset, std::uint64_t size);

}  // namespace fastpipe
