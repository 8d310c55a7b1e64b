// The multipliers of the inverse DCTs, round(x * 2^13), and the places of their binary points (see idct.h).
#pragma once

namespace fastpipe {

constexpr int kConstBits = 13;
constexpr int kPass1Bits = 2;

constexpr int k0_298 = 2446, k0_390 = 3196, k0_541 = 4433, k0_765 = 6270, k0_899 = 7373, k1_175 = 9633, k1_501 = 12299;
constexpr int k1_847 = 15137, k1_961 = 16069, k2_053 = 16819, k2_562 = 20995, k3_072 = 25172;

// Of the reduced transforms, of inputs 1, 3, 5, 7 (odd) and 2, 6 (even).
constexpr int kHalf2 = 15137, kHalf6 = -6270;                                              // 4 outputs
constexpr int kOuter1 = 20995, kOuter3 = 7373, kOuter5 = -4926, kOuter7 = -4176;           // of 4: the first and last
constexpr int kInner1 = 8697, kInner3 = -17799, kInner5 = 11893, kInner7 = -1730;          // of 4: those between
constexpr int kQuarter1 = 29692, kQuarter3 = -10426, kQuarter5 = 6967, kQuarter7 = -5906;  // 2 outputs

// Both passes' shifts, from what they multiply to what they give; half sizes have a bit more, quarters two.
constexpr int kFirstShift = kConstBits - kPass1Bits;
constexpr int kLastShift = kConstBits + kPass1Bits + 3;

}  // namespace fastpipe
