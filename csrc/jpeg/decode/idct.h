// Quantised DCT coefficients of two neighbouring blocks -> their pixels at full, half, quarter or eighth size, as
// libjpeg-turbo's accurate integer inverse DCT makes them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastpipe {

// Two blocks side by side, row by row: row r of the left block is at [16 * r], of the right one at [16 * r + 8].
constexpr int kPairCoefficients = 128;

// Dequantised coefficients larger than this, which no 8-bit picture has, can overflow 16 bits; decoders then differ.
constexpr int kMostCoefficient = 8191;

// Writes `size` rows (8, 4, 2 or 1: the blocks' sides in pixels) of 2 * size pixels, `stride` bytes apart.
//   coefficients: kPairCoefficients of them, 32-byte aligned
//   quant: 64 steps, row by row
// Returns false where values overflow in a way that libjpeg-turbo's code does not share; the pixels then mean nothing.
// (Other overflow, which needs coefficients that no encoder makes, is that of its SIMD code.)
// At 8 the arithmetic is that of C. Loeffler, A. Ligtenberg and G. Moschytz, "Practical fast 1-D DCT algorithms with 11
// multiplications" (ICASSP 1989) in 13-bit fixed point, columns first, two bits more between the passes: the IJG
// library's "islow". The smaller sizes are that with the result's neighbours averaged, as in the IJG library's reduced
// transforms: multipliers and rounding are theirs.
using IdctPair = bool (*)(const std::int16_t* coefficients, const std::uint16_t* quant, std::uint8_t* pixels,
                          std::ptrdiff_t stride);
IdctPair idct_pair_avx2(int size);

// The same for two pairs of blocks beside one another, at full size. Null where this machine lacks the instructions.
using IdctQuad = bool (*)(const std::int16_t* left, const std::int16_t* right, const std::uint16_t* quant,
                          std::uint8_t* pixels, std::ptrdiff_t stride);
IdctQuad idct_quad_avx512();

}  // namespace fastpipe
