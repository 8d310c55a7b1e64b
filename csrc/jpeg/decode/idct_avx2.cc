#include "jpeg/decode/idct.h"

#if defined(__x86_64__)
#include <cstring>

#include "base/x86.h"
#include "jpeg/decode/idct_multipliers.h"

namespace fastpipe {
namespace {

// Multipliers of two interleaved 16-bit values.
FASTPIPE_AVX2 inline __m256i pair(int first, int second) {
  return _mm256_set1_epi32(
      static_cast<int>(static_cast<unsigned>(second) << 16 | (static_cast<unsigned>(first) & 0xFFFF)));
}

// Half of the columns (the lower or the upper four of each block), in 32 bits.
struct Half {
  __m256i out[8];
};

template <int kShift>
FASTPIPE_AVX2 inline void combine(__m256i tmp10, __m256i tmp11, __m256i tmp12, __m256i tmp13, __m256i odd0,
                                  __m256i odd1, __m256i odd2, __m256i odd3, Half* half) {
  const __m256i round = _mm256_set1_epi32(1 << (kShift - 1));
  const __m256i a = _mm256_add_epi32(tmp10, round), b = _mm256_add_epi32(tmp11, round);
  const __m256i c = _mm256_add_epi32(tmp12, round), d = _mm256_add_epi32(tmp13, round);
  half->out[0] = _mm256_srai_epi32(_mm256_add_epi32(a, odd3), kShift);
  half->out[7] = _mm256_srai_epi32(_mm256_sub_epi32(a, odd3), kShift);
  half->out[1] = _mm256_srai_epi32(_mm256_add_epi32(b, odd2), kShift);
  half->out[6] = _mm256_srai_epi32(_mm256_sub_epi32(b, odd2), kShift);
  half->out[2] = _mm256_srai_epi32(_mm256_add_epi32(c, odd1), kShift);
  half->out[5] = _mm256_srai_epi32(_mm256_sub_epi32(c, odd1), kShift);
  half->out[3] = _mm256_srai_epi32(_mm256_add_epi32(d, odd0), kShift);
  half->out[4] = _mm256_srai_epi32(_mm256_sub_epi32(d, odd0), kShift);
}

// `sum` and `difference` are inputs 0 + 4 and 0 - 4 in the upper halves of 32 bits; the others are two inputs (or sums
// of inputs) interleaved: 2 and 6; 7 + 3 and 5 + 1; 7 and 1; 5 and 3.
template <int kShift>
FASTPIPE_AVX2 inline void transform_half(__m256i sum, __m256i difference, __m256i in26, __m256i sums, __m256i in71,
                                         __m256i in53, Half* half) {
  const __m256i even3 = _mm256_madd_epi16(in26, pair(k0_541 + k0_765, k0_541));
  const __m256i even2 = _mm256_madd_epi16(in26, pair(k0_541, k0_541 - k1_847));
  const __m256i even0 = _mm256_srai_epi32(sum, 16 - kConstBits);
  const __m256i even1 = _mm256_srai_epi32(difference, 16 - kConstBits);
  const __m256i z3 = _mm256_madd_epi16(sums, pair(k1_175 - k1_961, k1_175));
  const __m256i z4 = _mm256_madd_epi16(sums, pair(k1_175, k1_175 - k0_390));
  const __m256i odd0 = _mm256_add_epi32(_mm256_madd_epi16(in71, pair(k0_298 - k0_899, -k0_899)), z3);
  const __m256i odd3 = _mm256_add_epi32(_mm256_madd_epi16(in71, pair(-k0_899, k1_501 - k0_899)), z4);
  const __m256i odd1 = _mm256_add_epi32(_mm256_madd_epi16(in53, pair(k2_053 - k2_562, -k2_562)), z4);
  const __m256i odd2 = _mm256_add_epi32(_mm256_madd_epi16(in53, pair(-k2_562, k3_072 - k2_562)), z3);
  combine<kShift>(_mm256_add_epi32(even0, even3), _mm256_add_epi32(even1, even2), _mm256_sub_epi32(even1, even2),
                  _mm256_sub_epi32(even0, even3), odd0, odd1, odd2, odd3, half);
}

// One pass over the first index of v, for all columns.
template <int kShift>
FASTPIPE_AVX2 inline void transform(__m256i v[8]) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i sum = _mm256_add_epi16(v[0], v[4]), difference = _mm256_sub_epi16(v[0], v[4]);
  const __m256i z3 = _mm256_add_epi16(v[7], v[3]), z4 = _mm256_add_epi16(v[5], v[1]);
  Half low, high;
  transform_half<kShift>(_mm256_unpacklo_epi16(zero, sum), _mm256_unpacklo_epi16(zero, difference),
                         _mm256_unpacklo_epi16(v[2], v[6]), _mm256_unpacklo_epi16(z3, z4),
                         _mm256_unpacklo_epi16(v[7], v[1]), _mm256_unpacklo_epi16(v[5], v[3]), &low);
  transform_half<kShift>(_mm256_unpackhi_epi16(zero, sum), _mm256_unpackhi_epi16(zero, difference),
                         _mm256_unpackhi_epi16(v[2], v[6]), _mm256_unpackhi_epi16(z3, z4),
                         _mm256_unpackhi_epi16(v[7], v[1]), _mm256_unpackhi_epi16(v[5], v[3]), &high);
  for (int i = 0; i < 8; ++i) v[i] = _mm256_packs_epi32(low.out[i], high.out[i]);
}

// Each block for itself.
FASTPIPE_AVX2 inline void transpose(__m256i v[8]) {
  __m256i a[8], b[8];
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm256_unpacklo_epi16(v[2 * i], v[2 * i + 1]);
    a[2 * i + 1] = _mm256_unpackhi_epi16(v[2 * i], v[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    b[4 * i] = _mm256_unpacklo_epi32(a[4 * i], a[4 * i + 2]);
    b[4 * i + 1] = _mm256_unpackhi_epi32(a[4 * i], a[4 * i + 2]);
    b[4 * i + 2] = _mm256_unpacklo_epi32(a[4 * i + 1], a[4 * i + 3]);
    b[4 * i + 3] = _mm256_unpackhi_epi32(a[4 * i + 1], a[4 * i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = _mm256_unpacklo_epi64(b[i], b[i + 4]);
    v[2 * i + 1] = _mm256_unpackhi_epi64(b[i], b[i + 4]);
  }
}

// Two rows of both blocks: left row 0, left row 1, right row 0, right row 1.
FASTPIPE_AVX2 inline void store_rows(__m256i rows, std::uint8_t* pixels, std::ptrdiff_t stride) {
  const __m256i ordered = _mm256_permute4x64_epi64(rows, 0xD8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(pixels), _mm256_castsi256_si128(ordered));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(pixels + stride), _mm256_extracti128_si256(ordered, 1));
}

// Columns of 16-bit pixels around 0 -> rows of bytes.
FASTPIPE_AVX2 inline void store_transposed(const __m256i v[8], std::uint8_t* pixels, std::ptrdiff_t stride) {
  const __m256i middle = _mm256_set1_epi8(static_cast<char>(0x80));
  const __m256i v02 = _mm256_xor_si256(_mm256_packs_epi16(v[0], v[2]), middle);
  const __m256i v13 = _mm256_xor_si256(_mm256_packs_epi16(v[1], v[3]), middle);
  const __m256i v46 = _mm256_xor_si256(_mm256_packs_epi16(v[4], v[6]), middle);
  const __m256i v57 = _mm256_xor_si256(_mm256_packs_epi16(v[5], v[7]), middle);
  const __m256i v01 = _mm256_unpacklo_epi8(v02, v13), v23 = _mm256_unpackhi_epi8(v02, v13);
  const __m256i v45 = _mm256_unpacklo_epi8(v46, v57), v67 = _mm256_unpackhi_epi8(v46, v57);
  const __m256i left_top = _mm256_unpacklo_epi16(v01, v23), left_bottom = _mm256_unpackhi_epi16(v01, v23);
  const __m256i right_top = _mm256_unpacklo_epi16(v45, v67), right_bottom = _mm256_unpackhi_epi16(v45, v67);
  store_rows(_mm256_unpacklo_epi32(left_top, right_top), pixels, stride);
  store_rows(_mm256_unpackhi_epi32(left_top, right_top), pixels + 2 * stride, stride);
  store_rows(_mm256_unpacklo_epi32(left_bottom, right_bottom), pixels + 4 * stride, stride);
  store_rows(_mm256_unpackhi_epi32(left_bottom, right_bottom), pixels + 6 * stride, stride);
}

FASTPIPE_AVX2 inline __m256i dequantised(const std::int16_t* coefficients, const std::uint16_t* quant, int row) {
  const __m256i values = _mm256_load_si256(reinterpret_cast<const __m256i*>(coefficients + 16 * row));
  const __m128i steps = _mm_loadu_si128(reinterpret_cast<const __m128i*>(quant + 8 * row));
  return _mm256_mullo_epi16(values, _mm256_broadcastsi128_si256(steps));
}

// What is over the limit, as something other than zero.
FASTPIPE_AVX2 inline __m256i excess(__m256i values) {
  return _mm256_subs_epu16(_mm256_abs_epi16(values), _mm256_set1_epi16(kMostCoefficient));
}

FASTPIPE_AVX2 bool idct_pair_8(const std::int16_t* coefficients, const std::uint16_t* quant, std::uint8_t* pixels,
                               std::ptrdiff_t stride) {
  __m256i v[8];
  for (int i = 0; i < 8; ++i) v[i] = dequantised(coefficients, quant, i);
  const __m256i over = excess(v[0]);
  transform<kConstBits - kPass1Bits>(v);
  transpose(v);
  transform<kConstBits + kPass1Bits + 3>(v);
  store_transposed(v, pixels, stride);
  return _mm256_testz_si256(over, over) != 0;
}

template <int kShift>
FASTPIPE_AVX2 inline void reduce_half(__m256i even, __m256i in26, __m256i in13, __m256i in57, __m256i out[4]) {
  const __m256i round = _mm256_set1_epi32(1 << (kShift - 1));
  const __m256i base = _mm256_add_epi32(even, round);
  const __m256i swing = _mm256_madd_epi16(in26, pair(kHalf2, kHalf6));
  const __m256i outer = _mm256_add_epi32(_mm256_madd_epi16(in13, pair(kOuter1, kOuter3)),
                                         _mm256_madd_epi16(in57, pair(kOuter5, kOuter7)));
  const __m256i inner = _mm256_add_epi32(_mm256_madd_epi16(in13, pair(kInner1, kInner3)),
                                         _mm256_madd_epi16(in57, pair(kInner5, kInner7)));
  const __m256i high = _mm256_add_epi32(base, swing), low = _mm256_sub_epi32(base, swing);
  out[0] = _mm256_srai_epi32(_mm256_add_epi32(high, outer), kShift);
  out[3] = _mm256_srai_epi32(_mm256_sub_epi32(high, outer), kShift);
  out[1] = _mm256_srai_epi32(_mm256_add_epi32(low, inner), kShift);
  out[2] = _mm256_srai_epi32(_mm256_sub_epi32(low, inner), kShift);
}

FASTPIPE_AVX2 inline __m256i eight(int a, int b, int c, int d, int e, int f, int g, int h) {
  const auto s = [](int value) { return static_cast<short>(value); };
  return _mm256_broadcastsi128_si256(_mm_setr_epi16(s(a), s(b), s(c), s(d), s(e), s(f), s(g), s(h)));
}

// Both blocks' row of 8 -> 4 sums each, in 32 bits.
FASTPIPE_AVX2 inline __m256i reduce_row(__m256i row) {
  constexpr int kOne = 1 << (kConstBits + 1);
  const __m256i sum0 = _mm256_madd_epi16(row, eight(kOne, kOuter1, kHalf2, kOuter3, 0, kOuter5, kHalf6, kOuter7));
  const __m256i sum1 = _mm256_madd_epi16(row, eight(kOne, kInner1, -kHalf2, kInner3, 0, kInner5, -kHalf6, kInner7));
  const __m256i sum2 = _mm256_madd_epi16(row, eight(kOne, -kInner1, -kHalf2, -kInner3, 0, -kInner5, -kHalf6, -kInner7));
  const __m256i sum3 = _mm256_madd_epi16(row, eight(kOne, -kOuter1, kHalf2, -kOuter3, 0, -kOuter5, kHalf6, -kOuter7));
  const __m256i sums = _mm256_hadd_epi32(_mm256_hadd_epi32(sum0, sum1), _mm256_hadd_epi32(sum2, sum3));
  constexpr int kShift = kConstBits + kPass1Bits + 3 + 1;
  return _mm256_srai_epi32(_mm256_add_epi32(sums, _mm256_set1_epi32(1 << (kShift - 1))), kShift);
}

FASTPIPE_AVX2 bool idct_pair_4(const std::int16_t* coefficients, const std::uint16_t* quant, std::uint8_t* pixels,
                               std::ptrdiff_t stride) {
  __m256i v[8];
  __m256i over = _mm256_setzero_si256();
  for (int i = 0; i < 8; ++i) {
    v[i] = dequantised(coefficients, quant, i);
    over = _mm256_or_si256(over, excess(v[i]));
  }
  const __m256i zero = _mm256_setzero_si256();
  constexpr int kToEven = 16 - (kConstBits + 1);
  constexpr int kShift = kConstBits - kPass1Bits + 1;
  __m256i low[4], high[4];
  reduce_half<kShift>(_mm256_srai_epi32(_mm256_unpacklo_epi16(zero, v[0]), kToEven), _mm256_unpacklo_epi16(v[2], v[6]),
                      _mm256_unpacklo_epi16(v[1], v[3]), _mm256_unpacklo_epi16(v[5], v[7]), low);
  reduce_half<kShift>(_mm256_srai_epi32(_mm256_unpackhi_epi16(zero, v[0]), kToEven), _mm256_unpackhi_epi16(v[2], v[6]),
                      _mm256_unpackhi_epi16(v[1], v[3]), _mm256_unpackhi_epi16(v[5], v[7]), high);
  __m256i rows[4];
  for (int i = 0; i < 4; ++i) rows[i] = reduce_row(_mm256_packs_epi32(low[i], high[i]));
  const __m256i words01 = _mm256_packs_epi32(rows[0], rows[1]), words23 = _mm256_packs_epi32(rows[2], rows[3]);
  const __m256i bytes =
      _mm256_xor_si256(_mm256_packs_epi16(words01, words23), _mm256_set1_epi8(static_cast<char>(0x80)));
  // Each block's 4 x 4 pixels -> 8 x 4.
  const __m128i left = _mm256_castsi256_si128(bytes), right = _mm256_extracti128_si256(bytes, 1);
  const __m128i top = _mm_unpacklo_epi32(left, right), bottom = _mm_unpackhi_epi32(left, right);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(pixels), top);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(pixels + stride), _mm_unpackhi_epi64(top, top));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(pixels + 2 * stride), bottom);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(pixels + 3 * stride), _mm_unpackhi_epi64(bottom, bottom));
  return _mm256_testz_si256(over, over) != 0;
}

// In 32 bits, of half of the columns: the sum of inputs 1, 3, 5 and 7 by their multipliers.
FASTPIPE_AVX2 inline __m256i quarter_odd(__m256i in13, __m256i in57) {
  return _mm256_add_epi32(_mm256_madd_epi16(in13, pair(kQuarter1, kQuarter3)),
                          _mm256_madd_epi16(in57, pair(kQuarter5, kQuarter7)));
}

// What of 16 bits has more than 15 after all, or is not the whole product.
FASTPIPE_AVX2 inline __m256i wrapped(const std::int16_t* coefficients, const std::uint16_t* quant, int row,
                                     __m256i product) {
  const __m256i values = _mm256_load_si256(reinterpret_cast<const __m256i*>(coefficients + 16 * row));
  const __m128i steps = _mm_loadu_si128(reinterpret_cast<const __m128i*>(quant + 8 * row));
  const __m256i both = _mm256_broadcastsi128_si256(steps);
  const __m256i upper = _mm256_xor_si256(_mm256_mulhi_epi16(values, both), _mm256_srai_epi16(product, 15));
  return _mm256_or_si256(upper, _mm256_srai_epi16(both, 15));
}

FASTPIPE_AVX2 bool idct_pair_2(const std::int16_t* coefficients, const std::uint16_t* quant, std::uint8_t* pixels,
                               std::ptrdiff_t stride) {
  constexpr int kUsed[5] = {0, 1, 3, 5, 7};
  __m256i v[8];
  __m256i over = _mm256_setzero_si256();
  for (const int row : kUsed) {
    v[row] = dequantised(coefficients, quant, row);
    over = _mm256_or_si256(over, _mm256_or_si256(excess(v[row]), wrapped(coefficients, quant, row, v[row])));
  }
  const __m256i zero = _mm256_setzero_si256();
  constexpr int kShift = kConstBits - kPass1Bits + 2;
  const __m256i round = _mm256_set1_epi32(1 << (kShift - 1));
  constexpr int kToEven = 16 - (kConstBits + 2);
  const __m256i even_low = _mm256_add_epi32(_mm256_srai_epi32(_mm256_unpacklo_epi16(zero, v[0]), kToEven), round);
  const __m256i even_high = _mm256_add_epi32(_mm256_srai_epi32(_mm256_unpackhi_epi16(zero, v[0]), kToEven), round);
  const __m256i odd_low = quarter_odd(_mm256_unpacklo_epi16(v[1], v[3]), _mm256_unpacklo_epi16(v[5], v[7]));
  const __m256i odd_high = quarter_odd(_mm256_unpackhi_epi16(v[1], v[3]), _mm256_unpackhi_epi16(v[5], v[7]));
  const __m256i top = _mm256_packs_epi32(_mm256_srai_epi32(_mm256_add_epi32(even_low, odd_low), kShift),
                                         _mm256_srai_epi32(_mm256_add_epi32(even_high, odd_high), kShift));
  const __m256i bottom = _mm256_packs_epi32(_mm256_srai_epi32(_mm256_sub_epi32(even_low, odd_low), kShift),
                                            _mm256_srai_epi32(_mm256_sub_epi32(even_high, odd_high), kShift));
  const __m256i most = _mm256_set1_epi16(2 * kMostCoefficient);
  over = _mm256_or_si256(over, _mm256_subs_epu16(_mm256_abs_epi16(top), most));
  over = _mm256_or_si256(over, _mm256_subs_epu16(_mm256_abs_epi16(bottom), most));
  const __m256i used = eight(-1, -1, 0, -1, 0, -1, 0, -1);

  // In each block: the odd sums of the two rows, then half of their even ones.
  constexpr int kHalfEven = 1 << (kConstBits + 1);
  const __m256i odd = eight(0, kQuarter1, 0, kQuarter3, 0, kQuarter5, 0, kQuarter7);
  const __m256i even = eight(kHalfEven, 0, 0, 0, 0, 0, 0, 0);
  const __m256i sums =
      _mm256_hadd_epi32(_mm256_hadd_epi32(_mm256_madd_epi16(top, odd), _mm256_madd_epi16(bottom, odd)),
                        _mm256_hadd_epi32(_mm256_madd_epi16(top, even), _mm256_madd_epi16(bottom, even)));
  const __m256i whole = _mm256_slli_epi32(_mm256_unpackhi_epi64(sums, sums), 1);
  constexpr int kQuarterShift = kLastShift + 2;
  const __m256i base = _mm256_add_epi32(whole, _mm256_set1_epi32(1 << (kQuarterShift - 1)));
  const __m256i first = _mm256_srai_epi32(_mm256_add_epi32(base, sums), kQuarterShift);
  const __m256i second = _mm256_srai_epi32(_mm256_sub_epi32(base, sums), kQuarterShift);
  const __m256i words = _mm256_packs_epi32(_mm256_unpacklo_epi32(first, second), zero);
  const __m256i bytes = _mm256_xor_si256(_mm256_packs_epi16(words, zero), _mm256_set1_epi8(static_cast<char>(0x80)));
  // Each block's 2 x 2 pixels -> 4 x 2.
  const __m128i square = _mm_unpacklo_epi16(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
  const auto rows = static_cast<std::uint64_t>(_mm_cvtsi128_si64(square));
  const auto upper_row = static_cast<std::uint32_t>(rows), lower_row = static_cast<std::uint32_t>(rows >> 32);
  std::memcpy(pixels, &upper_row, sizeof upper_row);
  std::memcpy(pixels + stride, &lower_row, sizeof lower_row);
  return _mm256_testz_si256(over, used) != 0;
}

constexpr IdctKernels kKernels = {"avx2", idct_pair_8, idct_pair_4, idct_pair_2, nullptr};

}  // namespace

const IdctKernels* avx2_idct() { return has_avx2() ? &kKernels : nullptr; }

}  // namespace fastpipe

#else

namespace fastpipe {

const IdctKernels* avx2_idct() { return nullptr; }

}  // namespace fastpipe

#endif
