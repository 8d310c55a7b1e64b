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
// libdeflate inflates in a quarter of zlib's time, and does it whole: into memory that the header tells the size of. So
// a PNG of ours is written in strips (docs/explanation/format.md), each a piece of the zlib stream that can be inflated
// by itself, if an empty final block is put behind it. Of them only those are inflated that the rows needed lie in; of
// any other PNG all rows are. Filters are undone from the first row needed to the last, and where the first one looks
// up, from the nearest row above that does not.
class PngDecoder {
 public:
  // Reads the chunks; see parse_png. The bytes must stay valid until the next open.
  Status open(const std::uint8_t* data, std::size_t size, std::int64_t max_pixels);

  const PngHeader& header() const { return parts_.header; }
  const PngParts& parts() const { return parts_; }

  // Makes rows [first, first + count), which the picture has, ready, and no others.
  Status decode(int first, int count);

  // The samples of a row that is ready: packed as in the file, of 16 bits the higher byte first. Behind them a byte can
  // be read.
  const std::uint8_t* row(int y) const { return at(y) + 1; }

  // Lets go of memory that only a giant picture needs.
  void give_back() {
    give_back_if_giant(&rows_);
    give_back_if_giant(&joined_);
    give_back_if_giant(&passes_);
  }

 private:
  struct Free {
    void operator()(libdeflate_decompressor* decompressor) const { libdeflate_free_decompressor(decompressor); }
  };

  std::size_t stride() const { return row_bytes_ + 1; }
  const std::uint8_t* at(int y) const { return rows_.data() + static_cast<std::size_t>(y - first_) * stride(); }
  std::uint8_t* at(int y) { return rows_.data() + static_cast<std::size_t>(y - first_) * stride(); }
  PngBytes joined();
  Status inflate_whole(std::vector<std::uint8_t>* out);
  Status inflate_strips(int first, int last);
  Status unfilter_rows(std::uint8_t* rows, int first, int count, std::size_t row_bytes);
  Status decode_passes();

  std::unique_ptr<libdeflate_decompressor, Free> decompressor_;  // made for the first picture
  PngParts parts_;
  std::size_t row_bytes_ = 0;
  int first_ = 0;                     // the row that rows_ begins with
  std::vector<std::uint8_t> rows_;    // (rows, 1 + row_bytes_): the number of a row's filter, its bytes
  std::vector<std::uint8_t> zeros_;   // above the first row
  std::vector<std::uint8_t> joined_;  // compressed bytes that lie in several pieces, or need an end
  std::vector<std::uint8_t> passes_;  // the rows of an interlaced picture, pass by pass; Note [Adam7]
};

}  // namespace fastpipe
