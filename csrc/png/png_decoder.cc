#include "png/png_decoder.h"

#include <new>

#include "base/at_least.h"
#include "png/unfilter.h"

namespace fastpipe {

Status PngDecoder::open(std::uint8_t* data, std::size_t size, std::int64_t max_pixels) {
  const Status status = parse_png(data, size, max_pixels, &parts_);
  row_bytes_ = parts_.header.row_bytes();
  return status;
}

Status PngDecoder::inflate() {
  if (decompressor_ == nullptr) decompressor_.reset(libdeflate_alloc_decompressor());
  if (decompressor_ == nullptr) throw std::bad_alloc();
  const std::size_t bytes = parts_.header.inflated_bytes();
  switch (libdeflate_zlib_decompress(decompressor_.get(), parts_.deflated, parts_.deflated_bytes,
                                     at_least(&inflated_, bytes), bytes, nullptr)) {
    case LIBDEFLATE_SUCCESS:
      return {};
    case LIBDEFLATE_SHORT_OUTPUT:
      return error(Code::png_corrupt, "its pixels end too soon");
    case LIBDEFLATE_INSUFFICIENT_SPACE:
      return error(Code::png_corrupt, "it has more pixels than it says");
    default:
      return error(Code::png_corrupt, "its pixels cannot be decompressed");
  }
}

Status PngDecoder::decode(int first, int count) {
  const Status status = inflate();
  if (!status.ok()) return status;
  while (first > 0 && looks_up(*at(first))) {
    --first;
    ++count;
  }
  zeros_.resize(row_bytes_);
  const std::size_t step = parts_.header.pixel_bytes();
  for (int y = first; y < first + count; ++y) {
    const int filter = *at(y);
    if (filter > kMostFilter) return error(Code::png_corrupt, "row %d has filter %d", y, filter);
    unfilter(filter, at(y) + 1, y > 0 ? row(y - 1) : zeros_.data(), row_bytes_, step);
  }
  return status;
}

}  // namespace fastpipe
