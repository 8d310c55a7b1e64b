// Python's bytes and arrays as the core takes them, and a status as Python raises it.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/image.h"
#include "base/status.h"
#include "coefficients/block_kernels.h"

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
