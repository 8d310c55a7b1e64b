// PNGs and masks, in whole, for Python.
#include <pybind11/stl.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/mask_row.h"
#include "engine/picture.h"
#include "png/png_filter.h"
#include "png/png_rows.h"
#include "python/gil.h"
#include "python/register.h"
#include "python/values.h"
#include "resize/nearest.h"

namespace fastpipe {
namespace {

const char* word_of(PngColor color) {
  switch (color) {
    case PngColor::gray:
      return "gray";
    case PngColor::rgb:
      return "rgb";
    case PngColor::palette:
      return "palette";
    case PngColor::gray_alpha:
      return "gray and alpha";
    case PngColor::rgb_alpha:
      break;
  }
  return "rgb and alpha";
}

py::dict png_header(const py::bytes& png, std::int64_t max_pixels) {
  const Bytes bytes(png);
  PngParts parts;
  raise_if(parse_png(bytes.data, bytes.size, max_pixels, &parts));
  py::dict found;
  found["width"] = parts.header.size.width;
  found["height"] = parts.header.size.height;
  found["bits"] = parts.header.bits;
  found["color"] = word_of(parts.header.color);
  found["interlaced"] = parts.header.interlaced;
  found["strip_rows"] = parts.strip_rows;
  return found;
}

// (height, width, channels), uint8 or uint16.
py::array samples_of(const py::bytes& png, std::int64_t max_pixels) {
  const Bytes bytes(png);
  PngDecoder decoder;
  raise_if(decoder.open(bytes.data, bytes.size, max_pixels));
  const PngHeader& header = decoder.header();
  const std::array<py::ssize_t, 3> shape = {header.size.height, header.size.width, png_channels(decoder.parts())};
  py::array samples =
      header.bits == 16 ? py::array(py::array_t<std::uint16_t>(shape)) : py::array(py::array_t<std::uint8_t>(shape));
  auto* const out = static_cast<std::uint8_t*>(samples.mutable_data());
  Status status;
  // `png` and `samples` are held by this call.
  without_gil([&] {
    status = decoder.decode(0, header.size.height);
    if (status.ok()) status = png_samples(decoder, out);
  });
  raise_if(status);
  return samples;
}

// (count, row bytes) -> (count, 1 + row bytes).
Pixels filter_rows(const Pixels& rows, int pixel_bytes, int strip_rows) {
  if (rows.ndim() != 2 || rows.size() == 0 || (rows.flags() & py::array::c_style) == 0) {
    throw py::value_error("rows: expected a C-contiguous uint8 array (rows, bytes), not empty");
  }
  if (pixel_bytes < 1 || strip_rows < 1) throw py::value_error("pixel_bytes and strip_rows must be at least 1");
  const auto count = static_cast<int>(rows.shape(0));
  const auto bytes = static_cast<std::size_t>(rows.shape(1));
  Pixels filtered({rows.shape(0), rows.shape(1) + 1});
  const std::uint8_t* const from = rows.data();
  std::uint8_t* const to = filtered.mutable_data();
  without_gil([&] { png_filter_rows(from, count, bytes, static_cast<std::size_t>(pixel_bytes), strip_rows, to); });
  return filtered;
}

py::array new_ids(int bits, int height, int width) {
  if (bits == 16) return py::array_t<std::int32_t>({height, width});
  return py::array_t<std::uint8_t>({height, width});
}

py::array decode_mask(const py::bytes& png, std::int64_t max_pixels) {
  const Bytes bytes(png);
  MaskRow mask;
  raise_if(mask.png()->open(bytes.data, bytes.size, max_pixels));
  const PngHeader header = mask.png()->header();
  py::array ids = new_ids(header.bits, header.size.height, header.size.width);
  const IdSpan out = {ids.mutable_data(), header.size, header.bits == 16 ? 4 : 1};
  Status status;
  without_gil([&] { status = mask.fill(out); });
  raise_if(status);
  return ids;
}

template <typename Id>
py::array_t<Id> resize_mask(const py::array_t<Id, py::array::c_style>& mask, int height, int width,
                            const std::optional<std::array<double, 4>>& box,
                            const std::optional<std::array<int, 4>>& bounds, bool flip, const py::kwargs& rendering) {
  if (mask.ndim() != 2 || mask.size() == 0) throw py::value_error("mask: expected (height, width), not empty");
  if (height < 1 || width < 1) throw py::value_error("height and width must be at least 1");
  const Size whole = {static_cast<int>(mask.shape(1)), static_cast<int>(mask.shape(0))};
  Rect in = {0, 0, whole.width, whole.height};
  if (bounds) in = {(*bounds)[0], (*bounds)[1], (*bounds)[2], (*bounds)[3]};
  Box part = {static_cast<double>(in.x), static_cast<double>(in.y), static_cast<double>(in.width),
              static_cast<double>(in.height)};
  if (box) part = {(*box)[0], (*box)[1], (*box)[2], (*box)[3]};
  RowOptions options = {true, false};
  render_as(rendering, &options);
  const bool padded = options.padding.mode != PaddingMode::none;
  NearestResizer resizer;
  Rect region;
  const bool possible = in.inside(whole) && (padded ? part.width > 0 && part.height > 0 : inside(part, in));
  if (!possible || (padded && !resizer.plan_padded(part, in, {width, height}, flip, options.padding, &region))) {
    throw py::value_error(words(Code::bad_crop));
  }
  py::array_t<Id> out({height, width});
  if (!padded) resizer.plan(part, in, {width, height}, flip);
  const Id* const ids = mask.data();
  resizer.fill(out.mutable_data(), [&](int y) { return ids + static_cast<std::ptrdiff_t>(y) * whole.width; });
  return out;
}

}  // namespace

void register_masks(py::module_& m) {
  using namespace py::literals;

  m.def("png_header", &png_header, "png"_a, "max_pixels"_a = kMaxPixels);
  m.def("png_samples", &samples_of, "png"_a, "max_pixels"_a = kMaxPixels);
  m.def("filter_rows", &filter_rows, "rows"_a.noconvert(), "pixel_bytes"_a, "strip_rows"_a);
  m.def("decode_mask", &decode_mask, "png"_a, "max_pixels"_a = kMaxPixels);
  m.def("resize_mask", &resize_mask<std::uint8_t>, "mask"_a.noconvert(), "height"_a, "width"_a, "box"_a = py::none(),
        "bounds"_a = py::none(), "flip"_a = false);
  m.def("resize_mask", &resize_mask<std::int32_t>, "mask"_a.noconvert(), "height"_a, "width"_a, "box"_a = py::none(),
        "bounds"_a = py::none(), "flip"_a = false);
}

}  // namespace fastpipe
