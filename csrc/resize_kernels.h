// The two inner loops of a separable resize, once in plain C++ and once a SIMD instruction set; all give the same
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastpipe {

// For each output position: the first input position, how many are read, and where their weights start.
struct Tap {
  std::int32_t first;
  std::int32_t count;
};

// Note [fixed point]
// Weights are 16-bit integers that add up to exactly 1 << shift, so a constant picture stays constant and no result
// leaves 0..255. A sum is at most 255 << 22 and fits 32 bits. The rounding is half up, as in Pillow. Integer sums do
// not depend on their order: every kernel gives the same bytes.
struct Weights {
  const Tap* taps;
  const std::int16_t* values;  // (outputs, per_output)
  int per_output;              // even; weights beyond a tap's count are 0
  int outputs;
  int shift;
};

struct ResizeKernels {
  const char* name;

  // One row of RGBX pixels -> one row of `outputs` RGB pixels. 16 bytes beyond the input's last pixel are readable,
  // one byte beyond the output's last pixel is writable.
  void (*horizontal)(const std::uint8_t* rgbx, std::uint8_t* rgb, const Weights& weights);

  // Rows `stride` bytes apart -> one row of `bytes` bytes, by the weights of one output row. Where `count` is odd, one
  // row more is readable.
  void (*vertical)(const std::uint8_t* rows, std::ptrdiff_t stride, const std::int16_t* values, int count, int shift,
                   std::uint8_t* out, int bytes);
};

// Each is null where this machine or this build lacks it.
const ResizeKernels* scalar_kernels();
const ResizeKernels* avx2_kernels();

// The fastest of them.
const ResizeKernels* best_kernels();

}  // namespace fastpipe
