#include "coefficients/block_kernels.h"

#if defined(__x86_64__)
#include "base/x86.h"
#include "coefficients/zigzag_tables.h"
#include "jpeg/decode/coefficient_rows.h"

namespace fastpipe {
namespace {

// The values of a block in bytes, row by row.
FASTPIPE_VBMI2 inline __m512i values_of(const BlockParts& parts) {
  const __m512i bytes = _mm512_loadu_si512(parts.values);
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(parts.values + parts.wide));
  __m512i small = _mm512_cvtepu8_epi16(halves);
  small = _mm512_and_si512(_mm512_or_si512(small, _mm512_slli_epi16(small, 4)), _mm512_set1_epi8(15));
  const __m128i known = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kSmallValues));
  small = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(known), small);
  const __m512i values = _mm512_mask_expand_epi8(bytes, ~0ull << parts.wide, small);
  const __m512i zigzag = _mm512_maskz_expand_epi8(parts.mask << 1, values);
  return _mm512_permutexvar_epi8(_mm512_load_si512(kRowsToZigzag.of), zigzag);
}

// Rows of two blocks side by side, in 16 bits.
FASTPIPE_VBMI2 inline void store(__m512i left, __m512i right, std::int16_t left_dc, std::int16_t right_dc,
                                 std::int16_t* pair) {
  const __m512i upper = _mm512_permutex2var_epi64(left, _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), right);
  const __m512i lower = _mm512_permutex2var_epi64(left, _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15), right);
  const __m128i dc[2] = {_mm_cvtsi32_si128(static_cast<std::uint16_t>(left_dc)),
                         _mm_cvtsi32_si128(static_cast<std::uint16_t>(right_dc))};
  const __m512i means = _mm512_zextsi256_si512(_mm256_setr_m128i(dc[0], dc[1]));
  const __m512i first = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(upper));
  _mm512_storeu_si512(pair, _mm512_or_si512(first, means));
  _mm512_storeu_si512(pair + 32, _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(upper, 1)));
  _mm512_storeu_si512(pair + 64, _mm512_cvtepi8_epi16(_mm512_castsi512_si256(lower)));
  _mm512_storeu_si512(pair + 96, _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(lower, 1)));
}

FASTPIPE_VBMI2 bool read(const BlockRow& row, const std::uint8_t* at, int first, int count, const std::int16_t* dc,
                         std::int16_t* pairs) {
  unsigned bad = 0;
  const std::uint8_t* const lengths = row.lengths + first;
  const auto start = static_cast<unsigned>(first);
  int i = 0;
  for (; i + 1 < count; i += 2, pairs += CoefficientRows::kPairStride) {
    const unsigned left_kind = row.kind(start + i), right_kind = row.kind(start + i + 1);
    const unsigned left_length = lengths[i], right_length = lengths[i + 1];
    const std::uint8_t* const right_at = at + left_length;
    const BlockParts left = take_apart(at, left_length, left_kind);
    const BlockParts right = take_apart(right_at, right_length, right_kind);
    store(values_of(left), values_of(right), dc[i], dc[i + 1], pairs);
    bad |= left.bad | right.bad;
    if (__builtin_expect((left_kind > kMostMaskBytes) | (right_kind > kMostMaskBytes), 0)) {
      if (bad != 0) return false;
      if (left_kind > kMostMaskBytes) bad |= !add_exceptions(at, left_length, pairs);
      if (right_kind > kMostMaskBytes) bad |= !add_exceptions(right_at, right_length, pairs + 8);
    }
    at = right_at + right_length;
  }
  if (i < count) {
    const unsigned kind = row.kind(start + i);
    const BlockParts last = take_apart(at, lengths[i], kind);
    store(values_of(last), _mm512_setzero_si512(), dc[i], 0, pairs);
    bad |= last.bad;
    if (kind > kMostMaskBytes && bad == 0) bad |= !add_exceptions(at, lengths[i], pairs);
  }
  return bad == 0;
}

constexpr BlockKernels kAvx512Blocks = {"avx512", read};

}  // namespace

const BlockKernels* avx512_blocks() { return has_vbmi2() ? &kAvx512Blocks : nullptr; }

}  // namespace fastpipe

#else

namespace fastpipe {

const BlockKernels* avx512_blocks() { return nullptr; }

}  // namespace fastpipe

#endif
