// The resize by itself, for Python: tests and benchmarks compare it with other libraries.
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "python/register.h"
#include "python/values.h"
#include "resize/padding.h"
#include "resize/resize.h"

namespace fastpipe {
namespace {

const ResizeKernels* kernels_named(const std::string& name) {
  for (const ResizeKernels* kernels : all_kernels()) {
    if (name == kernels->name) return kernels;
  }
  throw py::value_error("this machine has no resize kernels named " + name);
}

py::array resize(const py::array& pixels, int height, int width, const std::optional<std::array<double, 4>>& box,
                 const std::optional<std::array<int, 4>>& bounds, bool flip, const std::string& kernels,
                 int rows_at_once, const py::kwargs& rendering) {
  const py::array image = py::array::ensure(pixels, py::array::c_style);
  const PixelForm form = form_of("image", image, 3);
  if (height < 1 || width < 1) throw py::value_error("height and width must be at least 1");
  if (rows_at_once < 1) throw py::value_error("rows_at_once must be at least 1");
  const Size size = {static_cast<int>(image.shape(1)), static_cast<int>(image.shape(0))};
  Rect within = {0, 0, size.width, size.height};
  if (bounds) within = {(*bounds)[0], (*bounds)[1], (*bounds)[2], (*bounds)[3]};
  Box what = {double(within.x), double(within.y), double(within.width), double(within.height)};
  if (box) what = {(*box)[0], (*box)[1], (*box)[2], (*box)[3]};
  RowOptions options = {true, false};
  options.form = form;
  render_as(rendering, &options);
  const bool padded = options.padding.mode != PaddingMode::none;
  py::array out = new_image(height, width, form);
  PixelSpan resized = span_of(out);
  Padder padder;
  const bool possible = within.inside(size) && (padded ? what.width > 0 && what.height > 0 : inside(what, within));
  if (!possible || (padded && !padder.plan(what, within, {width, height}, options.padding, form.bytes()))) {
    throw py::value_error(words(Code::bad_crop));
  }
  if (padded && padder.empty()) {
    padder.spread(span_of(out), false);
    return out;
  }
  if (padded) {
    what = padder.box();
    resized = padder.room();
  }
  Resizer resizer(kernels.empty() ? best_kernels() : kernels_named(kernels));
  const Rect region = resizer.plan(what, within, resized.size, flip && !padded, options.resampling, form);
  const std::ptrdiff_t stride = static_cast<std::ptrdiff_t>(region.width) * form.bytes_decoded();
  rows_at_once = std::min(rows_at_once, region.height);
  std::vector<std::uint8_t> rows(static_cast<std::size_t>(stride * rows_at_once + kReadBeyond));
  for (int y = 0; y < region.height; y += rows_at_once) {
    const int count = std::min(rows_at_once, region.height - y);
    std::uint8_t* to = rows.data();
    for (int i = 0; i < count; ++i) {
      const auto* from = static_cast<const std::uint8_t*>(image.data(region.y + y + i, region.x, 0));
      const auto bytes = static_cast<std::size_t>(form.bytes());
      for (int x = 0; x < region.width; ++x, to += form.bytes_decoded(), from += bytes) std::memcpy(to, from, bytes);
    }
    resizer.take(y, count, rows.data(), stride);
  }
  resizer.finish(resized);
  if (padded) padder.spread(span_of(out), flip);
  return out;
}

}  // namespace

void register_resize(py::module_& m) {
  using namespace py::literals;

  m.def("resize", &resize, "image"_a, "height"_a, "width"_a, "box"_a = py::none(), "bounds"_a = py::none(),
        "flip"_a = false, "kernels"_a = "", "rows_at_once"_a = 8);
  m.def("resize_kernels", [] {
    std::vector<std::string> names;
    for (const ResizeKernels* kernels : all_kernels()) names.emplace_back(kernels->name);
    return names;
  });
}

}  // namespace fastpipe
