// Planes of brightness and colour -> rows of RGBX, as libjpeg-turbo's fancy upsampling and colour conversion make them:
// once in plain C++, and once an instruction set.
#pragma once

#include <cstdint>
#include <vector>

namespace fastpipe {

// All of these work in steps: they read and write up to kColorStep elements beyond `count`, which mean nothing.
constexpr int kColorStep = 32;

// All give the same bytes.
struct ColorKernels {
  const char* name;

  // Rows of half the height: 3/4 of the nearer row and 1/4 of the farther.
  // (3 near + far + bias) / 4; bias is 1 for the upper of two rows made of `near`, 2 for the lower.
  void (*twice_as_high)(const std::uint8_t* near, const std::uint8_t* far, int bias, std::uint8_t* out, int count);

  // 3 near + far, for twice_as_wide_sums.
  void (*three_to_one)(const std::uint8_t* near, const std::uint8_t* far, std::uint16_t* out, int count);

  // Rows of half the width -> 2 * count elements: 3/4 of the nearer element and 1/4 of the farther, its neighbour on
  // that side; elements -1 and count are read.
  void (*twice_as_wide)(const std::uint8_t* in, std::uint8_t* out, int count);
  void (*twice_as_wide_sums)(const std::uint16_t* in, std::uint8_t* out, int count);

  // ITU-R BT.601 as JFIF uses it, in 16-bit fixed point.
  void (*ycc_to_rgbx)(const std::uint8_t* y, const std::uint8_t* cb, const std::uint8_t* cr, std::uint8_t* rgbx,
                      int count);
  void (*gray_to_rgbx)(const std::uint8_t* y, std::uint8_t* rgbx, int count);
};

extern const ColorKernels kScalarColor;

// Each is null where this machine or this build lacks it.
const ColorKernels* neon_color();
const ColorKernels* avx2_color();
const ColorKernels* avx512_color();

// All that this machine can run, the fastest last.
std::vector<const ColorKernels*> all_color_kernels();

const ColorKernels* best_color_kernels();

}  // namespace fastpipe
