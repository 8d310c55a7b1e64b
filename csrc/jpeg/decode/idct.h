// Quantised DCT coefficients of two neighbouring blocks -> their pixels at full, half, quarter or eighth size, as
// libjpeg-turbo's accurate integer inverse DCT makes them: once in plain C++, and once an instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fastpipe {

// Two blocks side by side, row by row: row r of the left block is at [16 * r], of the right one at [16 * r + 8].
constexpr int kPairCoefficients = 128;

// Dequantised coefficients larger than this, which no 8-bit picture has, can overflow 16 bits; decoders then differ.
constexpr int kMostCoefficient = 8191;

// Up to this sum of the magnitudes in each column, no kernel's arithmetic overflows. Note [no overflow] in idct_neon.cc
constexpr int kMostColumn = 2952;

// Writes `size` rows (8, 4, 2 or 1: the blocks' sides in pixels) of 2 * size pixels, `stride` bytes apart.
//   coefficients: kPairCoefficients of them, 32-byte aligned
//   quant: 64 steps, row by row
// Returns false where values overflow in a way that libjpeg-turbo's code does not share; the pixels then mean nothing.
// (Other overflow, which needs coefficients that no encoder makes, is that of its SIMD code for x86.)
// At 8 the arithmetic is that of C. Loeffler, A. Ligtenberg and G. Moschytz, "Practical fast 1-D DCT algorithms with 11
// multiplications" (ICASSP 1989) in 13-bit fixed point, columns first, two bits more between the passes: the IJG
// library's "islow". The smaller sizes are that with the result's neighbours averaged, as in the IJG library's reduced
// transforms: multipliers and rounding are theirs.
using IdctPair = bool (*)(const std::int16_t* coefficients, const std::uint16_t* quant, std::uint8_t* pixels,
                          std::ptrdiff_t stride);

// The same for two pairs of blocks beside one another, at full size.
using IdctQuad = bool (*)(const std::int16_t* left, const std::int16_t* right, const std::uint16_t* quant,
                          std::uint8_t* pixels, std::ptrdiff_t stride);

// All give the same pixels. They give up on the same blocks, but for NEON: beyond kMostColumn it gives up on all.
struct IdctKernels {
  const char* name;
  IdctPair at_8, at_4, at_2;
  IdctQuad quad;  // may be null

  IdctPair pair(int size) const;
};

extern const IdctKernels kScalarIdct;

// Each is null where this machine or this build lacks it.
const IdctKernels* neon_idct();
const IdctKernels* avx2_idct();
const IdctKernels* avx512_idct();

// All that this machine can run, the fastest last.
std::vector<const IdctKernels*> all_idct_kernels();

const IdctKernels* best_idct_kernels();

}  // namespace fastpipe
