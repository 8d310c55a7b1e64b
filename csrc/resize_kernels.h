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
// The arithmetic is that of Pillow's Resample.c for 8-bit pictures, so results are its results, bit by bit: weights of
// 22 fraction bits, 32-bit sums that start at one half, a shift, a clip. SIMD multiplies 16-bit numbers, so a weight is
// kept as its upper 14 (15 for weight 1) and its lower 8 bits: the sum is (upper sum << 8) + lower sum. Integer sums do
// not depend on their order, and wrapping in between is harmless since the total fits: every kernel gives the same
// bytes.
constexpr int kWeightBits = 22;
constexpr int kLowerBits = 8;

// Weights of one output position, two taps at a time: {upper 0, upper 1, lower 0, lower 1}, ...
using SplitWeight = std::int16_t;

struct Weights {
  const Tap* taps;
  const SplitWeight* values;  // (outputs, 2 * per_output)
  int per_output;             // taps, even; weights beyond a tap's count are 0
  int outputs;

  const SplitWeight* of(int output) const { return values + static_cast<std::ptrdiff_t>(output) * per_output * 2; }
};

struct ResizeKernels {
  const char* name;

  // One row of RGBX pixels -> one row of `outputs` RGB pixels. 16 bytes beyond the input's last pixel are readable,
  // one byte beyond the output's last pixel is writable.
  void (*horizontal)(const std::uint8_t* rgbx, std::uint8_t* rgb, const Weights& weights);

  // Rows `stride` bytes apart -> one row of `bytes` bytes, by the weights of one output row. Where `count` is odd, one
  // row more is readable.
  void (*vertical)(const std::uint8_t* rows, std::ptrdiff_t stride, const SplitWeight* values, int count,
                   std::uint8_t* out, int bytes);
};

// Each is null where this machine or this build lacks it.
const ResizeKernels* scalar_kernels();
const ResizeKernels* avx2_kernels();

// The fastest of them.
const ResizeKernels* best_kernels();

}  // namespace fastpipe
