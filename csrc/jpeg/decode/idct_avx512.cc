#include "jpeg/decode/idct.h"

#if defined(__x86_64__)
#include "base/x86.h"
#include "jpeg/decode/idct_multipliers.h"

namespace fastpipe {
namespace {

// Step by step what idct_avx2.cc does with two blocks: a lane of 128 bits has a row of one block in both.
FASTPIPE_AVX512 inline __m512i pair(int first, int second) {
  return _mm512_set1_epi32(
      static_cast<int>(static_cast<unsigned>(second) << 16 | (static_cast<unsigned>(first) & 0xFFFF)));
}

template <int kShift>
FASTPIPE_AVX512 inline void transform_half(__m512i sum, __m512i difference, __m512i in26, __m512i sums, __m512i in71,
                                           __m512i in53, __m512i out[8]) {
  const __m512i even3 = _mm512_madd_epi16(in26, pair(k0_541 + k0_765, k0_541));
  const __m512i even2 = _mm512_madd_epi16(in26, pair(k0_541, k0_541 - k1_847));
  const __m512i even0 = _mm512_srai_epi32(sum, 16 - kConstBits);
  const __m512i even1 = _mm512_srai_epi32(difference, 16 - kConstBits);
  const __m512i z3 = _mm512_madd_epi16(sums, pair(k1_175 - k1_961, k1_175));
  const __m512i z4 = _mm512_madd_epi16(sums, pair(k1_175, k1_175 - k0_390));
  const __m512i odd0 = _mm512_add_epi32(_mm512_madd_epi16(in71, pair(k0_298 - k0_899, -k0_899)), z3);
  const __m512i odd3 = _mm512_add_epi32(_mm512_madd_epi16(in71, pair(-k0_899, k1_501 - k0_899)), z4);
  const __m512i odd1 = _mm512_add_epi32(_mm512_madd_epi16(in53, pair(k2_053 - k2_562, -k2_562)), z4);
  const __m512i odd2 = _mm512_add_epi32(_mm512_madd_epi16(in53, pair(-k2_562, k3_072 - k2_562)), z3);

  const __m512i round = _mm512_set1_epi32(1 << (kShift - 1));
  const __m512i first = _mm512_add_epi32(even0, round), second = _mm512_add_epi32(even1, round);
  const __m512i a = _mm512_add_epi32(first, even3), b = _mm512_add_epi32(second, even2);
  const __m512i c = _mm512_sub_epi32(second, even2), d = _mm512_sub_epi32(first, even3);
  out[0] = _mm512_srai_epi32(_mm512_add_epi32(a, odd3), kShift);
  out[7] = _mm512_srai_epi32(_mm512_sub_epi32(a, odd3), kShift);
  out[1] = _mm512_srai_epi32(_mm512_add_epi32(b, odd2), kShift);
  out[6] = _mm512_srai_epi32(_mm512_sub_epi32(b, odd2), kShift);
  out[2] = _mm512_srai_epi32(_mm512_add_epi32(c, odd1), kShift);
  out[5] = _mm512_srai_epi32(_mm512_sub_epi32(c, odd1), kShift);
  out[3] = _mm512_srai_epi32(_mm512_add_epi32(d, odd0), kShift);
  out[4] = _mm512_srai_epi32(_mm512_sub_epi32(d, odd0), kShift);
}

template <int kShift>
FASTPIPE_AVX512 inline void transform(__m512i v[8]) {
  const __m512i zero = _mm512_setzero_si512();
  const __m512i sum = _mm512_add_epi16(v[0], v[4]), difference = _mm512_sub_epi16(v[0], v[4]);
  const __m512i z3 = _mm512_add_epi16(v[7], v[3]), z4 = _mm512_add_epi16(v[5], v[1]);
  __m512i low[8], high[8];
  transform_half<kShift>(_mm512_unpacklo_epi16(zero, sum), _mm512_unpacklo_epi16(zero, difference),
                         _mm512_unpacklo_epi16(v[2], v[6]), _mm512_unpacklo_epi16(z3, z4),
                         _mm512_unpacklo_epi16(v[7], v[1]), _mm512_unpacklo_epi16(v[5], v[3]), low);
  transform_half<kShift>(_mm512_unpackhi_epi16(zero, sum), _mm512_unpackhi_epi16(zero, difference),
                         _mm512_unpackhi_epi16(v[2], v[6]), _mm512_unpackhi_epi16(z3, z4),
                         _mm512_unpackhi_epi16(v[7], v[1]), _mm512_unpackhi_epi16(v[5], v[3]), high);
  for (int i = 0; i < 8; ++i) v[i] = _mm512_packs_epi32(low[i], high[i]);
}

FASTPIPE_AVX512 inline void transpose(__m512i v[8]) {
  __m512i a[8], b[8];
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm512_unpacklo_epi16(v[2 * i], v[2 * i + 1]);
    a[2 * i + 1] = _mm512_unpackhi_epi16(v[2 * i], v[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    b[4 * i] = _mm512_unpacklo_epi32(a[4 * i], a[4 * i + 2]);
    b[4 * i + 1] = _mm512_unpackhi_epi32(a[4 * i], a[4 * i + 2]);
    b[4 * i + 2] = _mm512_unpacklo_epi32(a[4 * i + 1], a[4 * i + 3]);
    b[4 * i + 3] = _mm512_unpackhi_epi32(a[4 * i + 1], a[4 * i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = _mm512_unpacklo_epi64(b[i], b[i + 4]);
    v[2 * i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 4]);
  }
}

// Two rows of each of the four blocks, block by block.
FASTPIPE_AVX512 inline void store_rows(__m512i rows, std::uint8_t* pixels, std::ptrdiff_t stride) {
  const __m512i ordered = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), rows);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(pixels), _mm512_castsi512_si256(ordered));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(pixels + stride), _mm512_extracti64x4_epi64(ordered, 1));
}

FASTPIPE_AVX512 inline void store_transposed(const __m512i v[8], std::uint8_t* pixels, std::ptrdiff_t stride) {
  const __m512i middle = _mm512_set1_epi8(static_cast<char>(0x80));
  const __m512i v02 = _mm512_xor_si512(_mm512_packs_epi16(v[0], v[2]), middle);
  const __m512i v13 = _mm512_xor_si512(_mm512_packs_epi16(v[1], v[3]), middle);
  const __m512i v46 = _mm512_xor_si512(_mm512_packs_epi16(v[4], v[6]), middle);
  const __m512i v57 = _mm512_xor_si512(_mm512_packs_epi16(v[5], v[7]), middle);
  const __m512i v01 = _mm512_unpacklo_epi8(v02, v13), v23 = _mm512_unpackhi_epi8(v02, v13);
  const __m512i v45 = _mm512_unpacklo_epi8(v46, v57), v67 = _mm512_unpackhi_epi8(v46, v57);
  const __m512i left_top = _mm512_unpacklo_epi16(v01, v23), left_bottom = _mm512_unpackhi_epi16(v01, v23);
  const __m512i right_top = _mm512_unpacklo_epi16(v45, v67), right_bottom = _mm512_unpackhi_epi16(v45, v67);
  store_rows(_mm512_unpacklo_epi32(left_top, right_top), pixels, stride);
  store_rows(_mm512_unpackhi_epi32(left_top, right_top), pixels + 2 * stride, stride);
  store_rows(_mm512_unpacklo_epi32(left_bottom, right_bottom), pixels + 4 * stride, stride);
  store_rows(_mm512_unpackhi_epi32(left_bottom, right_bottom), pixels + 6 * stride, stride);
}

FASTPIPE_AVX512 bool idct_quad_8(const std::int16_t* left, const std::int16_t* right, const std::uint16_t* quant,
                                 std::uint8_t* pixels, std::ptrdiff_t stride) {
  __m512i v[8];
  for (int i = 0; i < 8; ++i) {
    const __m256i first = _mm256_load_si256(reinterpret_cast<const __m256i*>(left + 16 * i));
    const __m256i second = _mm256_load_si256(reinterpret_cast<const __m256i*>(right + 16 * i));
    const __m128i steps = _mm_loadu_si128(reinterpret_cast<const __m128i*>(quant + 8 * i));
    v[i] =
        _mm512_mullo_epi16(_mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1), _mm512_broadcast_i32x4(steps));
  }
  const __mmask32 over = _mm512_cmpgt_epu16_mask(_mm512_abs_epi16(v[0]), _mm512_set1_epi16(kMostCoefficient));
  transform<kConstBits - kPass1Bits>(v);
  transpose(v);
  transform<kConstBits + kPass1Bits + 3>(v);
  store_transposed(v, pixels, stride);
  return over == 0;
}

}  // namespace

const IdctKernels* avx512_idct() {
  if (!has_avx512() || !has_avx2()) return nullptr;
  static const IdctKernels kernels = {"avx512", avx2_idct()->at_8, avx2_idct()->at_4, avx2_idct()->at_2, idct_quad_8};
  return &kernels;
}

}  // namespace fastpipe

#else

namespace fastpipe {

const IdctKernels* avx512_idct() { return nullptr; }

}  // namespace fastpipe

#endif
