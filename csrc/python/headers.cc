// The headers of many files, for Python.
#include <fcntl.h>
#include <pybind11/stl.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/file_header.h"
#include "io/file.h"
#include "python/gil.h"
#include "python/register.h"
#include "python/values.h"

namespace fastpipe {
namespace {

int open_file(const std::string& path) {
  int number;
  do {
    number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe of that name would block
  } while (number < 0 && errno == EINTR);
  return number;
}

using Numbers = py::array_t<std::uint64_t, py::array::c_style>;

// Of pictures in files; paths that are the same and stand one behind the other are opened once.
py::array_t<FileHeader> read_headers(const std::vector<std::string>& paths, const Numbers& offsets,
                                     const Numbers& sizes) {
  const auto count = static_cast<py::ssize_t>(paths.size());
  if (offsets.ndim() != 1 || sizes.ndim() != 1 || offsets.size() != count || sizes.size() != count) {
    throw py::value_error("expected an offset and a size for each path");
  }
  py::array_t<FileHeader> headers(count);
  FileHeader* const out = headers.mutable_data();
  // The arrays are held by this call.
  without_gil([&] {
    std::optional<Descriptor> file;
    int error = 0;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      if (i == 0 || paths[i] != paths[i - 1]) {
        file.reset();
        const int number = open_file(paths[i]);
        error = number < 0 ? errno : 0;
        if (number >= 0) file.emplace(number);
      }
      out[i] = FileHeader{};
      out[i].error = error;
      if (file) out[i] = read_file_header(file->get(), offsets.data()[i], sizes.data()[i]);
    }
  });
  return headers;
}

}  // namespace

void register_headers(py::module_& m) {
  using namespace py::literals;

  PYBIND11_NUMPY_DTYPE(FileHeader, error, width, height, channels, bits, plain);
  m.def("read_headers", &read_headers, "paths"_a, "offsets"_a, "sizes"_a);
}

}  // namespace fastpipe
