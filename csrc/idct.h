// Quantised DCT coefficients of two neighbouring blocks -> their pixels, as libjpeg-turbo's accurate integer inverse
// DCT makes them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastpipe {

// Two blocks side by side, row by row: row r of the left block is at [16 * r], of the right one at [16 * r + 8].
constexpr int kPairCoefficients = 128;

// Coefficients whose first row, dequantised, is larger than this can overflow 16 bits; decoders then differ.
constexpr int kMostFirstRow = 8191;

// coefficients: kPairCoefficients of them, 32-byte aligned. quant: 64 steps, row by row. Writes 8 rows of 16 pixels,
// `stride` bytes apart. Returns false where the values overflow; the pixels then mean nothing.
// The arithmetic is that of C. Loeffler, A. Ligtenberg and G. Moschytz, "Practical fast 1-D DCT algorithms with 11
// multiplications" (ICASSP 1989) in 13-bit fixed point, columns first, two bits more between the passes: the IJG
// library's "islow".
bool idct_pair_avx2(const std::int16_t* coefficients, const std::uint16_t* quant, std::uint8_t* pixels,
                    std::ptrdiff_t stride);

}  // namespace fastpipe
