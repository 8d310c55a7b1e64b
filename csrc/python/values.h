// Python's bytes and arrays as the core takes them, and a status as Python raises it.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/image.h"
#include "base/status.h"
#include "coefficients/block_kernels.h"
#include "engine/row.h"

namespace fastpipe {

namespace py = pybind11;

using Pixels = py::array_t<std::uint8_t>;

// What Python gets as a StatusError, a ValueError with the status's words and, as `code`, its code.
struct StatusError {
  Status status;
};

inline void raise_if(const Status& status) {
  if (!status.ok()) throw StatusError{status};
}

// Why a row failed: a Reason, a str of the status's words with its code as `code`.
py::object reason_of(const Status& status);

// Note [thread-local data]
// A thread's first call from Python makes room for all thread-local data of this extension, since pybind11 has some,
// and glibc ends the process where there is no memory for that. So what is large is a pointer, and made when it is
// needed.

// The form of the pixels of an array of pictures, (..., channels) of uint8 or uint16, C-contiguous and not empty, with
// as many dimensions.
inline PixelForm form_of(const char* name, const py::array& images, py::ssize_t dimensions) {
  const bool bytes = py::isinstance<py::array_t<std::uint8_t>>(images);
  if ((bytes || py::isinstance<py::array_t<std::uint16_t>>(images)) && images.ndim() == dimensions &&
      (images.flags() & py::array::c_style) != 0 && images.shape(dimensions - 3) > 0 &&
      images.shape(dimensions - 2) > 0) {
    const py::ssize_t channels = images.shape(dimensions - 1);
    if (channels == 1 || channels == 3 || channels == 4) return {static_cast<int>(channels), bytes ? 8 : 16};
  }
  throw py::value_error(std::string(name) + ": expected a C-contiguous array of uint8 or uint16, " +
                        (dimensions == 4 ? "(rows, height, width, channels)" : "(height, width, channels)") +
                        " with 1, 3 or 4 channels, not empty");
}

// Of (height, width, channels).
inline PixelSpan span_of(py::array& image) {
  const Size size = {static_cast<int>(image.shape(1)), static_cast<int>(image.shape(0))};
  return {static_cast<std::uint8_t*>(image.mutable_data()), size, static_cast<std::ptrdiff_t>(image.strides(0))};
}

inline py::array new_image(int height, int width, PixelForm form) {
  const std::array<py::ssize_t, 3> shape = {height, width, form.channels};
  return form.bits == 16 ? py::array(py::array_t<std::uint16_t>(shape)) : py::array(py::array_t<std::uint8_t>(shape));
}

// One of some words, by its place among them.
template <typename Choice, std::size_t kCount>
Choice choice_of(const char* name, const std::string& word, const std::array<const char*, kCount>& words) {
  std::string expected;
  for (std::size_t i = 0; i < kCount; ++i) {
    if (word == words[i]) return static_cast<Choice>(i);
    expected.append(i == 0 ? "" : i + 1 < kCount ? ", " : " or ").append(words[i]);
  }
  throw py::value_error(std::string(name) + ": expected " + expected + ", got " + word);
}

// Rows of maps, whose keywords are those of `map`; `images` is (rows, height, width, channels).
inline void fill_as_map(const py::array& images, const py::dict& map, RowOptions* options) {
  constexpr std::array<const char*, 4> kNumbers = {"float16", "float32", "uint8", "uint16"};
  constexpr py::ssize_t kMostChannels = 4096;
  MapForm& form = options->map;
  form.number = choice_of<MapNumber>("map", map["dtype"].cast<std::string>(), kNumbers);
  if (images.ndim() != 4 || (images.flags() & py::array::c_style) == 0 || images.itemsize() != form.number_bytes() ||
      images.shape(3) < 1 || images.shape(3) > kMostChannels) {
    throw py::value_error("images: expected maps, a C-contiguous array of their dtype (rows, height, width, channels)");
  }
  form.channels = static_cast<int>(images.shape(3));
  if (!map["invalid"].is_none()) form.invalid = map["invalid"].cast<float>();
  for (const int channel : map["negated"].cast<std::vector<int>>()) {
    if (channel < 0 || channel >= std::min(form.channels, 64)) throw py::value_error("map: negated lacks its channel");
    form.negated |= std::uint64_t{1} << channel;
  }
}

// What the rows of an array are filled with, by its dimensions: pictures (rows, height, width, channels), masks (rows,
// height, width), or bytes of arrays (rows, bytes).
inline void fill_as(const py::array& images, const py::dict& rendering, RowOptions* options) {
  if (rendering.contains("map")) return fill_as_map(images, rendering["map"], options);
  if (images.ndim() == 2) {
    if (!py::isinstance<Pixels>(images) || (images.flags() & py::array::c_style) == 0 ||
        images.shape(1) > std::numeric_limits<int>::max()) {
      throw py::value_error("images: expected bytes of arrays, a C-contiguous array of uint8 (rows, bytes)");
    }
    options->copied = true;
    return;
  }
  if (images.ndim() != 3) {
    options->form = form_of("images", images, 4);
    return;
  }
  const bool bytes = py::isinstance<py::array_t<std::uint8_t>>(images);
  if ((!bytes && !py::isinstance<py::array_t<std::int32_t>>(images)) || (images.flags() & py::array::c_style) == 0) {
    throw py::value_error("images: expected masks, a C-contiguous array of uint8 or int32 (rows, height, width)");
  }
  options->id_bytes = bytes ? 1 : 4;
}

// Refuses a row that would lie beyond the slot's array. Note [rows of own sizes]
inline void check_place(const RowTask& task, const py::array& images) {
  py::ssize_t rows = 1;
  if (task.out_width > 0) {
    rows = static_cast<py::ssize_t>(task.out_width) * task.out_height;
    if (rows == 0 || images.ndim() < 3 || images.shape(1) != 1 || images.shape(2) != 1) {
      throw py::value_error("tasks: rows of own sizes have a height, and images (pixels, 1, 1, channels)");
    }
  }
  if (task.out_row + rows > images.shape(0)) throw py::value_error("tasks: out_row lies beyond the images");
}

// Refuses a row that cannot be cut into the patches that it should consist of.
inline void check_patches(const RowTask& task, const RowOptions& options) {
  if (options.patches.side == 0) return;
  if (!options.patches.divides({task.out_width, task.out_height}) || task.out_width == 0) {
    throw py::value_error("tasks: rows of patches have sizes of their own, which are multiples of the patches");
  }
}

// Refuses a map that has not the bytes of its size.
inline void check_map(const RowTask& task, const RowOptions& options) {
  const std::uint64_t pixels = static_cast<std::uint64_t>(task.width) * task.height;
  if (options.is_map() && pixels * static_cast<std::uint64_t>(options.map.bytes()) + task.skip != task.size) {
    throw py::value_error("tasks: a map has other bytes than its size says");
  }
}

// Numbers, one for each channel -> the bytes of a pixel.
inline std::array<std::uint8_t, 8> fill_of(const std::vector<std::uint16_t>& numbers, PixelForm form) {
  std::array<std::uint8_t, 8> bytes = {};
  const std::uint16_t most = form.bits == 8 ? 255 : 65535;
  if (numbers.size() != static_cast<std::size_t>(form.channels) ||
      std::any_of(numbers.begin(), numbers.end(), [most](std::uint16_t number) { return number > most; })) {
    throw py::value_error("fill: expected a number for each of " + std::to_string(form.channels) +
                          " channels, from 0 to " + std::to_string(most));
  }
  for (std::size_t c = 0; c < numbers.size(); ++c) {
    if (form.bits == 8) {
      bytes[c] = static_cast<std::uint8_t>(numbers[c]);
    } else {
      std::memcpy(&bytes[2 * c], &numbers[c], 2);
    }
  }
  return bytes;
}

// Sets how pixels are made, from keywords of those names. The form is known.
inline void render_as(const py::dict& rendering, RowOptions* options) {
  constexpr std::array<const char*, 3> kInterpolations = {"bilinear", "bicubic", "nearest"};
  constexpr std::array<const char*, 5> kModes = {"none", "constant", "edge", "reflect", "symmetric"};
  for (const auto& [key, value] : rendering) {
    const auto name = key.cast<std::string>();
    if (name == "interpolation") {
      options->resampling.interpolation =
          choice_of<Interpolation>("interpolation", value.cast<std::string>(), kInterpolations);
    } else if (name == "antialias") {
      options->resampling.antialias = value.cast<bool>();
    } else if (name == "padding_mode") {
      options->padding.mode = choice_of<PaddingMode>("padding_mode", value.cast<std::string>(), kModes);
    } else if (name == "fill") {
      if (options->id_bytes == 0 && !options->is_map())
        options->padding.fill = fill_of(value.cast<std::vector<std::uint16_t>>(), options->form);
    } else if (name == "mask_fill") {
      options->padding.mask_fill = value.cast<std::int32_t>();
    } else if (name == "patch_size") {
      options->patches.side = value.cast<int>();
    } else if (name == "merge") {
      options->patches.merge = value.cast<int>();
    } else if (name == "map") {
      continue;  // fill_as has taken it
    } else {
      throw py::type_error("unexpected keyword " + name);
    }
  }
}

// By name; "": the fastest.
inline const BlockKernels& block_kernels_named(const std::string& name) {
  if (name.empty()) return *best_block_kernels();
  for (const BlockKernels* kernels : all_block_kernels()) {
    if (name == kernels->name) return *kernels;
  }
  throw py::value_error("this machine has no kernels named " + name);
}

// The bytes of a Python object; it must outlive them.
struct Bytes {
  const std::uint8_t* data;
  std::size_t size;

  explicit Bytes(const py::bytes& bytes) {
    char* start = nullptr;
    Py_ssize_t length = 0;
    if (PyBytes_AsStringAndSize(bytes.ptr(), &start, &length) != 0) throw py::error_already_set();
    data = reinterpret_cast<const std::uint8_t*>(start);
    size = static_cast<std::size_t>(length);
  }
};

}  // namespace fastpipe
