// Python's bytes and arrays as the core takes them, and a status as Python raises it.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/image.h"
#include "base/status.h"
#include "coefficients/block_kernels.h"
#include "engine/row.h"

namespace fastpipe {

namespace py = pybind11;

using Pixels = py::array_t<std::uint8_t>;

inline std::string words_of(const Status& status) {
  std::string text = words(status.code);
  if (status.detail[0] != '\0') text.append(": ").append(status.detail);
  return text;
}

inline void raise_if(const Status& status) {
  if (!status.ok()) throw py::value_error(words_of(status));
}

// Note [thread-local data]
// A thread's first call from Python makes room for all thread-local data of this extension, since pybind11 has some,
// and glibc ends the process where there is no memory for that. So what is large is a pointer, and made when it is
// needed.

inline PixelSpan span_of(Pixels& image) {
  const Size size = {static_cast<int>(image.shape(1)), static_cast<int>(image.shape(0))};
  return {image.mutable_data(), size, static_cast<std::ptrdiff_t>(size.width) * 3};
}

inline Pixels new_image(int height, int width) { return Pixels({height, width, 3}); }

// What an array is to be filled with.
inline RowKind kind_of(const py::array& images, bool masks) {
  if ((images.flags() & py::array::c_style) != 0) {
    const bool bytes = py::isinstance<py::array_t<std::uint8_t>>(images);
    if (!masks && bytes && images.ndim() == 4 && images.shape(3) == 3) return RowKind::rgb;
    if (masks && bytes && images.ndim() == 3) return RowKind::ids_u8;
    if (masks && py::isinstance<py::array_t<std::int32_t>>(images) && images.ndim() == 3) return RowKind::ids_i32;
  }
  throw py::value_error(
      "images: expected a C-contiguous array: uint8 (rows, height, width, 3) for pictures; uint8 or int32 (rows, "
      "height, width) for masks");
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

// Sets how pixels are made, from keywords of those names.
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
      options->padding.fill = value.cast<std::array<std::uint8_t, 3>>();
    } else if (name == "mask_fill") {
      options->padding.mask_fill = value.cast<std::int32_t>();
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
