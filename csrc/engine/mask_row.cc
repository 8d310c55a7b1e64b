#include "engine/mask_row.h"

#include <algorithm>
#include <cstddef>

#include "png/png_rows.h"

namespace fastpipe {
namespace {

// A row of 16-bit samples, the higher byte first.
struct WideRow {
  const std::uint8_t* bytes;

  int operator[](int x) const { return bytes[2 * x] << 8 | bytes[2 * x + 1]; }
};

}  // namespace

Status MaskRow::fill(const Box& box, const Rect& bounds, bool flip, Padding padding, IdSpan out) {
  const PngHeader& header = png_.header();
  if (!header.has_ids()) return error(Code::png_unsupported, "a mask in colour; masks are gray, or have a palette");
  if (header.bits > 8 * out.bytes) return error(Code::png_unsupported, "a mask of 16 bits; the batch's masks have 8");
  Rect region;
  if (padding.mode == PaddingMode::none) {
    region = resizer_.plan(box, bounds, out.size, flip);
  } else if (!resizer_.plan_padded(box, bounds, out.size, flip, padding, &region)) {
    return error(Code::bad_crop, "box %g, %g, %g x %g of a mask", box.x, box.y, box.width, box.height);
  }
  const Status status = png_.decode(region.y, std::max(region.height, 1));  // where all is fill, that of any row
  if (!status.ok()) return status;
  if (out.bytes == 1) {
    write(static_cast<std::uint8_t*>(out.data));
  } else {
    write(static_cast<std::int32_t*>(out.data));
  }
  return status;
}

Status MaskRow::fill(IdSpan out) {
  const Rect all = {0, 0, out.size.width, out.size.height};
  return fill({0, 0, static_cast<double>(all.width), static_cast<double>(all.height)}, all, false, {}, out);
}

template <typename Id>
void MaskRow::write(Id* out) {
  if (png_.header().bits == 16) {
    resizer_.fill(out, [this](int y) { return WideRow{png_.row(y)}; });
  } else {
    resizer_.fill(out, [this](int y) { return png_ids(png_.header(), png_.row(y), &room_); });
  }
}

}  // namespace fastpipe
