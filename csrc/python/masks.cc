// PNGs and masks, in whole, for Python.
#include <pybind11/stl.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/mask_row.h"
#include "engine/picture.h"
#include "png/png_rows.h"
#include "png/png_writer.h"
#include "python/gil.h"
#include "python/register.h"
#include "python/values.h"
#include "resize/nearest.h"

namespace fastpipe {
namespace {

// The decoder changes its bytes, Python's may not be.
std::vector<std::uint8_t> copy_of(const py::bytes& png) {
  const Bytes bytes(png);
  return {bytes.data, bytes.data + bytes.size};
}

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
  std::vector<std::uint8_t> bytes = copy_of(png);
  PngParts parts;
  raise_if(parse_png(bytes.data(), bytes.size(), max_pixels, &parts));
  py::dict found;
  found["width"] = parts.header.size.width;
  found["height"] = parts.header.size.height;
  found["bits"] = parts.header.bits;
  found["color"] = word_of(parts.header.color);
  return found;
}

Pixels decode_png(const py::bytes& png, std::int64_t max_pixels) {
  std::vector<std::uint8_t> bytes = copy_of(png);
  PngDecoder decoder;
  raise_if(decoder.open(bytes.data(), bytes.size(), max_pixels));
  const Size size = decoder.header().size;
  Pixels image = new_image(size.height, size.width);
  const PixelSpan span = span_of(image);
  Status status;
  without_gil([&] {
    std::vector<std::uint8_t> room;
    status = decoder.decode(0, size.height);
    if (status.ok()) status = png_rgbx(decoder, {0, 0, size.width, size.height}, rgb_rows(&span), &room);
  });
  raise_if(status);
  return image;
}

py::array new_ids(int bits, int height, int width) {
  if (bits == 16) return py::array_t<std::int32_t>({height, width});
  return py::array_t<std::uint8_t>({height, width});
}

py::array decode_mask(const py::bytes& png, std::int64_t max_pixels) {
  std::vector<std::uint8_t> bytes = copy_of(png);
  MaskRow mask;
  raise_if(mask.png()->open(bytes.data(), bytes.size(), max_pixels));
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

// uint8 or uint16.
py::bytes encode_mask(const py::array& mask) {
  const bool wide = py::isinstance<py::array_t<std::uint16_t>>(mask);
  if ((!wide && !py::isinstance<py::array_t<std::uint8_t>>(mask)) || mask.ndim() != 2 || mask.size() == 0 ||
      (mask.flags() & py::array::c_style) == 0) {
    throw py::value_error("mask: expected a C-contiguous array (height, width) of uint8 or uint16");
  }
  if (mask.nbytes() >= std::int64_t{1} << 30) throw py::value_error("mask: expected less than a GiB");
  const Size size = {static_cast<int>(mask.shape(1)), static_cast<int>(mask.shape(0))};
  const auto* const ids = static_cast<const std::uint8_t*>(mask.data());
  std::vector<std::uint8_t> swapped, png;
  // `mask` is held by this call.
  without_gil([&] {
    if (wide) {
      swapped.resize(static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height) * 2);
      const auto* const values = reinterpret_cast<const std::uint16_t*>(ids);
      for (std::size_t i = 0; i < swapped.size(); i += 2) {
        swapped[i] = static_cast<std::uint8_t>(values[i / 2] >> 8);
        swapped[i + 1] = static_cast<std::uint8_t>(values[i / 2]);
      }
    }
    png = write_mask_png(wide ? swapped.data() : ids, size, wide ? 16 : 8);
  });
  return {reinterpret_cast<const char*>(png.data()), png.size()};
}

}  // namespace

void register_masks(py::module_& m) {
  using namespace py::literals;

  m.def("png_header", &png_header, "png"_a, "max_pixels"_a = kMaxPixels);
  m.def("decode_png", &decode_png, "png"_a, "max_pixels"_a = kMaxPixels);
  m.def("decode_mask", &decode_mask, "png"_a, "max_pixels"_a = kMaxPixels);
  m.def("encode_mask", &encode_mask, "mask"_a);
  m.def("resize_mask", &resize_mask<std::uint8_t>, "mask"_a.noconvert(), "height"_a, "width"_a, "box"_a = py::none(),
        "bounds"_a = py::none(), "flip"_a = false);
  m.def("resize_mask", &resize_mask<std::int32_t>, "mask"_a.noconvert(), "height"_a, "width"_a, "box"_a = py::none(),
        "bounds"_a = py::none(), "flip"_a = false);
}

}  // namespace fastpipe
