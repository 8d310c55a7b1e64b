#include "jpeg/decode/idct.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include <cstring>

#include "jpeg/decode/idct_multipliers.h"

namespace fastpipe {
namespace {

// Eight sums of products, in 32 bits.
struct Wide {
  int32x4_t low, high;

  Wide operator+(const Wide& other) const { return {vaddq_s32(low, other.low), vaddq_s32(high, other.high)}; }
  Wide operator-(const Wide& other) const { return {vsubq_s32(low, other.low), vsubq_s32(high, other.high)}; }
};

inline Wide product(int16x8_t values, int multiplier) {
  const auto by = static_cast<std::int16_t>(multiplier);
  return {vmull_n_s16(vget_low_s16(values), by), vmull_high_n_s16(values, by)};
}

inline Wide plus(const Wide& sum, int16x8_t values, int multiplier) {
  const auto by = static_cast<std::int16_t>(multiplier);
  return {vmlal_n_s16(sum.low, vget_low_s16(values), by), vmlal_high_n_s16(sum.high, values, by)};
}

// Values times 2^kShift, and what rounds a later shift by kLater.
template <int kShift, int kLater>
inline Wide raised(int16x8_t values) {
  const int32x4_t round = vdupq_n_s32(1 << (kLater - 1));
  return {vaddq_s32(vshll_n_s16(vget_low_s16(values), kShift), round),
          vaddq_s32(vshll_high_n_s16(values, kShift), round)};
}

// Shifted down to 16 bits; of shifts by more than 16 only the first 16, which leave the upper halves.
template <int kShift>
inline int16x8_t narrow(const Wide& sum) {
  if constexpr (kShift <= 16) {
    return vqshrn_high_n_s32(vqshrn_n_s32(sum.low, kShift), sum.high, kShift);
  } else {
    return vuzp2q_s16(vreinterpretq_s16_s32(sum.low), vreinterpretq_s16_s32(sum.high));
  }
}

// Eight inputs -> eight outputs.
template <int kShift>
inline void transform_8(int16x8_t v[8]) {
  const int16x8_t odd_a = vaddq_s16(v[7], v[3]), odd_b = vaddq_s16(v[5], v[1]);
  const Wide z3 = plus(product(odd_a, k1_175 - k1_961), odd_b, k1_175);
  const Wide z4 = plus(product(odd_a, k1_175), odd_b, k1_175 - k0_390);
  const Wide odd0 = plus(plus(z3, v[7], k0_298 - k0_899), v[1], -k0_899);
  const Wide odd1 = plus(plus(z4, v[5], k2_053 - k2_562), v[3], -k2_562);
  const Wide odd2 = plus(plus(z3, v[5], -k2_562), v[3], k3_072 - k2_562);
  const Wide odd3 = plus(plus(z4, v[7], -k0_899), v[1], k1_501 - k0_899);
  const Wide sum = raised<kConstBits, kShift>(vaddq_s16(v[0], v[4]));
  const Wide difference = raised<kConstBits, kShift>(vsubq_s16(v[0], v[4]));
  const Wide even_a = plus(product(v[2], k0_541 + k0_765), v[6], k0_541);
  const Wide even_b = plus(product(v[2], k0_541), v[6], k0_541 - k1_847);
  const Wide a = sum + even_a, b = difference + even_b, c = difference - even_b, d = sum - even_a;
  v[0] = narrow<kShift>(a + odd3);
  v[7] = narrow<kShift>(a - odd3);
  v[1] = narrow<kShift>(b + odd2);
  v[6] = narrow<kShift>(b - odd2);
  v[2] = narrow<kShift>(c + odd1);
  v[5] = narrow<kShift>(c - odd1);
  v[3] = narrow<kShift>(d + odd0);
  v[4] = narrow<kShift>(d - odd0);
}

// Eight inputs -> four outputs.
template <int kShift>
inline void transform_4(int16x8_t v[8]) {
  const Wide base = raised<kConstBits + 1, kShift>(v[0]);
  const Wide swing = plus(product(v[2], kHalf2), v[6], kHalf6);
  const Wide outer = plus(plus(plus(product(v[1], kOuter1), v[3], kOuter3), v[5], kOuter5), v[7], kOuter7);
  const Wide inner = plus(plus(plus(product(v[1], kInner1), v[3], kInner3), v[5], kInner5), v[7], kInner7);
  const Wide high = base + swing, low = base - swing;
  v[0] = narrow<kShift>(high + outer);
  v[1] = narrow<kShift>(low + inner);
  v[2] = narrow<kShift>(low - inner);
  v[3] = narrow<kShift>(high - outer);
}

// 2 x 2 elements of two rows are transposed.
inline void interchange_16(int16x8_t* a, int16x8_t* b) {
  const int16x8_t upper = vtrn1q_s16(*a, *b);
  *b = vtrn2q_s16(*a, *b);
  *a = upper;
}
inline void interchange_32(int16x8_t* a, int16x8_t* b) {
  const int32x4_t first = vreinterpretq_s32_s16(*a), second = vreinterpretq_s32_s16(*b);
  *a = vreinterpretq_s16_s32(vtrn1q_s32(first, second));
  *b = vreinterpretq_s16_s32(vtrn2q_s32(first, second));
}
inline void interchange_64(int16x8_t* a, int16x8_t* b) {
  const int64x2_t first = vreinterpretq_s64_s16(*a), second = vreinterpretq_s64_s16(*b);
  *a = vreinterpretq_s16_s64(vtrn1q_s64(first, second));
  *b = vreinterpretq_s16_s64(vtrn2q_s64(first, second));
}

inline void transpose(int16x8_t v[8]) {
  for (const int i : {0, 2, 4, 6}) interchange_16(&v[i], &v[i + 1]);
  for (const int i : {0, 1, 4, 5}) interchange_32(&v[i], &v[i + 2]);
  for (const int i : {0, 1, 2, 3}) interchange_64(&v[i], &v[i + 4]);
}

// A row of one block of a pair.
inline int16x8_t dequantised(const std::int16_t* coefficients, const std::uint16_t* quant, int row) {
  return vmulq_s16(vld1q_s16(coefficients + 16 * row), vreinterpretq_s16_u16(vld1q_u16(quant + 8 * row)));
}

// Note [no overflow]
// Where sums overflow, libjpeg-turbo's code for ARM gives other pixels than its code for x86. So these kernels take
// only blocks in which no sum can. With at most kMostColumn in each column, the first pass gives at most 16,381 at full
// size (multipliers are at most 1.39 there, and two bits are kept), and less than that below; so any two of its results
// add up to 16 bits, and the second pass stays inside 32. Blocks of encoders have at most 2,896 before quantisation,
// and those of photos a few hundred.
inline int16x8_t grown(int16x8_t sums, int16x8_t values) { return vqaddq_s16(sums, vqabsq_s16(values)); }

// Pixels, of what the second pass leaves.
template <int kShift>
inline uint8x16_t bytes_of(int16x8_t left, int16x8_t right) {
  const int8x16_t both = vqshrn_high_n_s16(vqshrn_n_s16(left, kShift - 16), right, kShift - 16);
  return veorq_u8(vreinterpretq_u8_s8(both), vdupq_n_u8(0x80));
}

// One block -> columns of its pixels, to be given to bytes_of; returns how large each column's coefficients are.
inline int16x8_t columns_8(const std::int16_t* coefficients, const std::uint16_t* quant, int16x8_t v[8]) {
  int16x8_t sums = vdupq_n_s16(0);
  for (int i = 0; i < 8; ++i) {
    v[i] = dequantised(coefficients, quant, i);
    sums = grown(sums, v[i]);
  }
  transform_8<kFirstShift>(v);
  transpose(v);
  transform_8<kLastShift>(v);
  return sums;
}

bool idct_pair_8(const std::int16_t* coefficients, const std::uint16_t* quant, std::uint8_t* pixels,
                 std::ptrdiff_t stride) {
  int16x8_t left[8], right[8];
  const int16x8_t sums_left = columns_8(coefficients, quant, left);
  const int16x8_t sums_right = columns_8(coefficients + 8, quant, right);
  uint8x16_t columns[8], pairs[8], fours[8];
  for (int i = 0; i < 8; ++i) columns[i] = bytes_of<kLastShift>(left[i], right[i]);
  // Columns 0 and 4, 1 and 5, ... of the left block, then of the right; then four columns; then all: two rows a vector.
  for (int i = 0; i < 4; ++i) {
    pairs[i] = vzip1q_u8(columns[i], columns[i + 4]);
    pairs[i + 4] = vzip2q_u8(columns[i], columns[i + 4]);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int j = 0; j < 2; ++j) {
      fours[i + j] = vzip1q_u8(pairs[i + j], pairs[i + j + 2]);
      fours[i + j + 2] = vzip2q_u8(pairs[i + j], pairs[i + j + 2]);
    }
  }
  for (int i = 0; i < 4; i += 2) {
    const uint8x16_t left_rows[2] = {vzip1q_u8(fours[i], fours[i + 1]), vzip2q_u8(fours[i], fours[i + 1])};
    const uint8x16_t right_rows[2] = {vzip1q_u8(fours[i + 4], fours[i + 5]), vzip2q_u8(fours[i + 4], fours[i + 5])};
    for (int j = 0; j < 2; ++j) {
      std::uint8_t* const to = pixels + (2 * i + 2 * j) * stride;
      vst1q_u8(to, vcombine_u8(vget_low_u8(left_rows[j]), vget_low_u8(right_rows[j])));
      vst1q_u8(to + stride, vcombine_u8(vget_high_u8(left_rows[j]), vget_high_u8(right_rows[j])));
    }
  }
  return vmaxvq_s16(vmaxq_s16(sums_left, sums_right)) <= kMostColumn;
}

bool idct_pair_4(const std::int16_t* coefficients, const std::uint16_t* quant, std::uint8_t* pixels,
                 std::ptrdiff_t stride) {
  int16x8_t rows[8];  // four of the left block, four of the right
  int16x8_t most = vdupq_n_s16(0);
  for (const int side : {0, 1}) {
    int16x8_t v[8], sums = vdupq_n_s16(0);
    for (int i = 0; i < 8; ++i) {
      v[i] = dequantised(coefficients + 8 * side, quant, i);
      sums = grown(sums, v[i]);
    }
    most = vmaxq_s16(most, sums);
    transform_4<kFirstShift + 1>(v);
    for (int i = 0; i < 4; ++i) rows[4 * side + i] = v[i];
  }
  transpose(rows);
  transform_4<kLastShift + 1>(rows);
  const uint8x16_t columns02 = bytes_of<kLastShift + 1>(rows[0], rows[2]);
  const uint8x16_t columns13 = bytes_of<kLastShift + 1>(rows[1], rows[3]);
  const uint8x16_t columns01 = vzip1q_u8(columns02, columns13), columns23 = vzip2q_u8(columns02, columns13);
  const uint16x8_t first = vreinterpretq_u16_u8(columns01), second = vreinterpretq_u16_u8(columns23);
  const uint32x4_t left = vreinterpretq_u32_u16(vzip1q_u16(first, second));  // its four rows
  const uint32x4_t right = vreinterpretq_u32_u16(vzip2q_u16(first, second));
  const uint8x16_t upper = vreinterpretq_u8_u32(vzip1q_u32(left, right));
  const uint8x16_t lower = vreinterpretq_u8_u32(vzip2q_u32(left, right));
  vst1_u8(pixels, vget_low_u8(upper));
  vst1_u8(pixels + stride, vget_high_u8(upper));
  vst1_u8(pixels + 2 * stride, vget_low_u8(lower));
  vst1_u8(pixels + 3 * stride, vget_high_u8(lower));
  return vmaxvq_s16(most) <= kMostColumn;
}

// Not 0 where a product is none of 16 bits, or a step is none.
inline uint16x8_t wrapped(const std::int16_t* coefficients, const std::uint16_t* quant, int row, int16x8_t product) {
  const int16x8_t values = vld1q_s16(coefficients + 16 * row);
  const int16x8_t steps = vreinterpretq_s16_u16(vld1q_u16(quant + 8 * row));
  const int32x4_t low = vmull_s16(vget_low_s16(values), vget_low_s16(steps)), high = vmull_high_s16(values, steps);
  const int16x8_t upper = vuzp2q_s16(vreinterpretq_s16_s32(low), vreinterpretq_s16_s32(high));
  return vreinterpretq_u16_s16(vorrq_s16(veorq_s16(upper, vshrq_n_s16(product, 15)), vshrq_n_s16(steps, 15)));
}

// The odd inputs of a row by their multipliers, in four parts.
inline int32x4_t odd_parts(int16x8_t row, int16x8_t multipliers) {
  const int32x4_t low = vmull_s16(vget_low_s16(row), vget_low_s16(multipliers));
  return vmlal_high_s16(low, row, multipliers);
}

bool idct_pair_2(const std::int16_t* coefficients, const std::uint16_t* quant, std::uint8_t* pixels,
                 std::ptrdiff_t stride) {
  constexpr int kShift = kFirstShift + 2, kQuarterShift = kLastShift + 2;
  const std::int16_t of_odd[8] = {0, kQuarter1, 0, kQuarter3, 0, kQuarter5, 0, kQuarter7};
  const int16x8_t multipliers = vld1q_s16(of_odd);
  int16x8_t rows[4];  // upper and lower of the left block, of the right block
  uint16x8_t bad = vdupq_n_u16(0);
  for (const int side : {0, 1}) {
    const std::int16_t* const block = coefficients + 8 * side;
    int16x8_t v[8], sums = vdupq_n_s16(0);
    for (const int i : {0, 1, 3, 5, 7}) {
      v[i] = dequantised(block, quant, i);
      sums = grown(sums, v[i]);
      bad = vorrq_u16(bad, wrapped(block, quant, i, v[i]));
    }
    const Wide base = raised<kConstBits + 2, kShift>(v[0]);
    const Wide odd = plus(plus(plus(product(v[1], kQuarter1), v[3], kQuarter3), v[5], kQuarter5), v[7], kQuarter7);
    rows[2 * side] = narrow<kShift>(base + odd);
    rows[2 * side + 1] = narrow<kShift>(base - odd);
    bad = vorrq_u16(bad, vcgtq_s16(sums, vdupq_n_s16(kMostColumn)));
  }

  const int32x4_t upper = vpaddq_s32(odd_parts(rows[0], multipliers), odd_parts(rows[2], multipliers));
  const int32x4_t lower = vpaddq_s32(odd_parts(rows[1], multipliers), odd_parts(rows[3], multipliers));
  const int32x4_t odd = vpaddq_s32(upper, lower);  // upper row: left, right; lower row: left, right
  const std::int32_t means[4] = {vgetq_lane_s16(rows[0], 0), vgetq_lane_s16(rows[2], 0), vgetq_lane_s16(rows[1], 0),
                                 vgetq_lane_s16(rows[3], 0)};
  const int32x4_t base =
      vaddq_s32(vshlq_n_s32(vld1q_s32(means), kConstBits + 2), vdupq_n_s32(1 << (kQuarterShift - 1)));
  const int32x4_t first = vshrq_n_s32(vaddq_s32(base, odd), kQuarterShift);
  const int32x4_t second = vshrq_n_s32(vsubq_s32(base, odd), kQuarterShift);
  const int16x8_t words = vcombine_s16(vmovn_s32(vzip1q_s32(first, second)), vmovn_s32(vzip2q_s32(first, second)));
  const uint8x8_t bytes = veor_u8(vreinterpret_u8_s8(vqmovn_s16(words)), vdup_n_u8(0x80));
  const std::uint32_t upper_row = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
  const std::uint32_t lower_row = vget_lane_u32(vreinterpret_u32_u8(bytes), 1);
  std::memcpy(pixels, &upper_row, sizeof upper_row);
  std::memcpy(pixels + stride, &lower_row, sizeof lower_row);
  const std::uint16_t is_used[8] = {0xFFFF, 0xFFFF, 0, 0xFFFF, 0, 0xFFFF, 0, 0xFFFF};
  return vmaxvq_u16(vandq_u16(bad, vld1q_u16(is_used))) == 0;
}

constexpr IdctKernels kKernels = {"neon", idct_pair_8, idct_pair_4, idct_pair_2, nullptr};

}  // namespace

const IdctKernels* neon_idct() { return &kKernels; }

}  // namespace fastpipe

#else

namespace fastpipe {

const IdctKernels* neon_idct() { return nullptr; }

}  // namespace fastpipe

#endif
