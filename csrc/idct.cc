#include "idct.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define FASTPIPE_AVX2 __attribute__((target("avx2")))

namespace fastpipe {
namespace {

constexpr int kConstBits = 13;
constexpr int kPass1Bits = 2;

// round(x * 2^13)
constexpr int k0_298 = 2446, k0_390 = 3196, k0_541 = 4433, k0_765 = 6270, k0_899 = 7373, k1_175 = 9633, k1_501 = 12299;
constexpr int k1_847 = 15137, k1_961 = 16069, k2_053 = 16819, k2_562 = 20995, k3_072 = 25172;

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

}  // namespace

FASTPIPE_AVX2 bool idct_pair_avx2(const std::int16_t* coefficients, const std::uint16_t* quant, std::uint8_t* pixels,
                                  std::ptrdiff_t stride) {
  __m256i v[8];
  for (int i = 0; i < 8; ++i) {
    const __m256i row = _mm256_load_si256(reinterpret_cast<const __m256i*>(coefficients + 16 * i));
    const __m128i steps = _mm_loadu_si128(reinterpret_cast<const __m128i*>(quant + 8 * i));
    v[i] = _mm256_mullo_epi16(row, _mm256_broadcastsi128_si256(steps));
  }
  const __m256i over = _mm256_subs_epu16(_mm256_abs_epi16(v[0]), _mm256_set1_epi16(kMostFirstRow));
  transform<kConstBits - kPass1Bits>(v);
  transpose(v);
  transform<kConstBits + kPass1Bits + 3>(v);
  store_transposed(v, pixels, stride);
  return _mm256_testz_si256(over, over) != 0;
}

}  // namespace fastpipe

#endif
