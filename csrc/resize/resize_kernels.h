// The inner loops of a separable resize, once in plain C++ and once an instruction set; all give the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fastpipe {

// Note [fixed point]
// The arithmetic is that of Pillow's Resample.c for 8-bit pictures, so results are its results, bit by bit: weights of
// 22 fraction bits, 32-bit sums that start at one half, a shift, a clip. SIMD multiplies narrower numbers, so a kernel
// takes each weight apart once for a picture (`arrange`) and puts the sums of the parts together, shifted by as much.
// Bicubic weights may be negative, and are less than 1.3 in size. Integer sums do not depend on their order, and
// wrapping in between is harmless since the total fits: every kernel gives the same bytes.
constexpr int kWeightBits = 22;
constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

// The weights of one direction. Every output position reads `taps` input positions, beginning at its `first`; those
// that are not its own have weight 0.
struct Weights {
  const std::int32_t* first;   // (outputs), rising, or falling if mirrored
  const std::int32_t* values;  // (outputs, taps), arranged as the kernels want them
  int taps;                    // a multiple of ResizeKernels::tap_group
  int outputs;

  const std::int32_t* of(int output) const { return values + static_cast<std::ptrdiff_t>(output) * taps; }
};

// Output positions that `horizontal` makes at once. Beyond the last, up to a whole group, `first` is that of the last
// and the weights are 0.
constexpr int kOutputGroup = 4;

// What is readable beyond the last pixel of a row of RGBX, and beyond the last row of bytes that `vertical` is given.
constexpr std::ptrdiff_t kReadBeyond = 64;

// What `horizontal` may write beyond the last group of pixels of a row.
constexpr std::ptrdiff_t kWrittenBeyond = 4;

struct ResizeKernels {
  const char* name;
  int tap_group;

  // Rewrites weights of 22 fraction bits, in place, into what the two below want; null if that is what they want.
  void (*arrange)(std::int32_t* values, std::ptrdiff_t count);

  // `count` rows of RGBX pixels -> as many rows of RGB pixels, each written up to the end of its last group and
  // kWrittenBeyond.
  using Horizontal = void (*)(const std::uint8_t* rgbx, std::ptrdiff_t rgbx_stride, int count, std::uint8_t* rgb,
                              std::ptrdiff_t rgb_stride, const Weights& weights);
  Horizontal horizontal;

  // The same of all four channels: RGBA -> RGBA.
  Horizontal horizontal_rgba;

  // `taps` rows `stride` bytes apart -> one row of `bytes` bytes, by the weights of one output position.
  void (*vertical)(const std::uint8_t* rows, std::ptrdiff_t stride, const std::int32_t* values, int taps,
                   std::uint8_t* out, int bytes);
};

extern const ResizeKernels kScalarKernels;

// Each is null where this machine or this build lacks it.
const ResizeKernels* neon_kernels();
const ResizeKernels* avx2_kernels();
const ResizeKernels* avx512_kernels();

// All that this machine can run, the fastest last.
std::vector<const ResizeKernels*> all_kernels();

const ResizeKernels* best_kernels();

}  // namespace fastpipe
