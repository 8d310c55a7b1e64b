// Coefficients as a shard holds them, for Python: back to a JPEG, and as they are.
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/at_least.h"
#include "coefficients/fpc_header.h"
#include "coefficients/mcu_rows.h"
#include "coefficients/restore.h"
#include "python/gil.h"
#include "python/register.h"
#include "python/values.h"

namespace fastpipe {
namespace {

constexpr std::int64_t kAnySize = INT64_MAX;

py::bytes restore_jpeg(const py::bytes& fpc, const std::string& kernels) {
  const BlockKernels& blocks = block_kernels_named(kernels);
  const Bytes bytes(fpc);
  JpegRestorer restorer;
  Status status;
  // `fpc` is held by this call.
  without_gil([&] {
    FpcHeader header;
    status = header.read(bytes.data, bytes.size, bytes.size, kAnySize);
    if (status.ok()) status = restorer.whole(header, bytes.data, blocks);
  });
  raise_if(status);
  return {reinterpret_cast<const char*>(restorer.jpeg()), restorer.jpeg_bytes()};
}

// Of each component an array (rows of blocks, blocks, 64), row by row; whatever the hash.
std::vector<py::array_t<std::int16_t>> coefficients_of(const py::bytes& fpc, const std::string& kernels) {
  const BlockKernels& blocks = block_kernels_named(kernels);
  const Bytes bytes(fpc);
  FpcHeader header;
  raise_if(header.read(bytes.data, bytes.size, bytes.size, kAnySize));
  const OutputHeader& frame = header.frame;
  const Size mcus = frame.mcus();
  std::array<std::vector<std::int16_t>, kMostComponents> memory;
  std::array<CoefficientRows, kMostComponents> rows;
  std::vector<py::array_t<std::int16_t>> found;
  for (std::size_t c = 0; c < frame.components; ++c) {
    rows[c].pairs = (mcus.width * frame.across(c) + 1) / 2;
    rows[c].first = aligned_at_least(
        &memory[c], static_cast<std::size_t>(rows[c].pairs * frame.down(c)) * CoefficientRows::kPairStride);
    found.emplace_back(std::vector<py::ssize_t>{frame.blocks(c).height, frame.blocks(c).width, 64});
  }
  McuRows reader;
  for (int y = 0; y < mcus.height; ++y) {
    if (!reader.read(header, bytes.data, y, 0, mcus.width, blocks, rows)) {
      raise_if(error(Code::coefficients_damaged, "in MCU row %d", y));
    }
    for (std::size_t c = 0; c < frame.components; ++c) {
      const Size real = frame.blocks(c);
      for (int row = 0; row < frame.down(c) && y * frame.down(c) + row < real.height; ++row) {
        for (int x = 0; x < real.width; ++x) {
          const std::int16_t* const block = rows[c].block(row, x);
          std::int16_t* const out = found[c].mutable_data(y * frame.down(c) + row, x, 0);
          for (int line = 0; line < 8; ++line) std::copy_n(block + 16 * line, 8, out + 8 * line);
        }
      }
    }
  }
  return found;
}

}  // namespace

void register_coefficients(py::module_& m) {
  using namespace py::literals;

  m.def("restore_jpeg", &restore_jpeg, "fpc"_a, "kernels"_a = "");
  m.def("coefficients_of", &coefficients_of, "fpc"_a, "kernels"_a = "");
  m.def("block_kernels", [] {
    std::vector<std::string> names;
    for (const BlockKernels* kernels : all_block_kernels()) names.emplace_back(kernels->name);
    return names;
  });
}

}  // namespace fastpipe
