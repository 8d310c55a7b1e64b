// PNG bytes -> the samples of its rows.
#pragma once

#include <libdeflate.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/image.h"
#include "base/status.h"
#include "png/png_header.h"

namespace fastpipe {

// Decodes one PNG at a time; a thread keeps one and reuses its memory. May throw only what allocation throws.
//
// Note [inflating]
// libdeflate inflates a mask in a quarter of zlib's time, and does it whole: all rows are inflated, into memory that
// the header tells the size of. Filters are undone from the first row needed to the last, and where the first one looks
// up, from the nearest row above that does not. `pack` writes rows without a filter (png_writer.h), so that costs
// nothing.
class PngDecoder {
 public:
  // Reads the chunks; see parse_png. The bytes change, and must stay valid until the next open.
  Status open(std::uint8_t* data, std::size_t size, std::int64_t max_pixels);

  const PngHeader& header() const { return parts_.header; }
  const PngParts& parts() const { return parts_; }

  // Makes rows [first, first + count), which the picture has, ready. Once an open.
  Status decode(int first, int count);

  // The samples of a row that is ready: packed as in the file, of 16 bits the higher byte first.
  const std::uint8_t* row(int y) const { return at(y) + 1; }

  // Lets go of memory that only a giant picture needs.
  void give_back() { give_back_if_giant(&inflated_); }

 private:
  struct Free {
    void operator()(libdeflate_decompressor* decompressor) const { libdeflate_free_decompressor(decompressor); }
  };

  const std::uint8_t* at(int y) const { return inflated_.data() + static_cast<std::size_t>(y) * (row_bytes_ + 1); }
  std::uint8_t* at(int y) { return inflated_.data() + static_cast<std::size_t>(y) * (row_bytes_ + 1); }
  Status inflate();

  std::unique_ptr<libdeflate_decompressor, Free> decompressor_;  // made for the first picture
  PngParts parts_;
  std::size_t row_bytes_ = 0;
  std::vector<std::uint8_t> inflated_;  // (height, 1 + row_bytes_): the number of a row's filter, its bytes
  std::vector<std::uint8_t> zeros_;     // above the first row
};

}  // namespace fastpipe
