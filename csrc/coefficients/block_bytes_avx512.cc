#include "coefficients/block_bytes.h"

#if defined(__x86_64__)
#include "base/x86.h"
#include "coefficients/block_row.h"

namespace fastpipe {
namespace {

// A bit for each of 64 values.
FASTPIPE_VBMI2 inline std::uint64_t bits(__mmask32 first, __mmask32 second) {
  return first | static_cast<std::uint64_t>(second) << 32;
}

// All values of a block at once, without a branch but for exceptions.
FASTPIPE_VBMI2 std::uint8_t* write_block(std::uint64_t mask, const std::int16_t* values, unsigned* kind,
                                         std::uint8_t* out) {
  const auto count = static_cast<unsigned>(__builtin_popcountll(mask));
  const std::uint64_t ours = _bzhi_u64(~0ull, count);
  const __m512i first = _mm512_loadu_si512(values), second = _mm512_loadu_si512(values + 32);
  const __m256i first_bytes = _mm512_cvtepi16_epi8(first), second_bytes = _mm512_cvtepi16_epi8(second);
  const __m512i bytes = _mm512_inserti64x4(_mm512_castsi256_si512(first_bytes), second_bytes, 1);
  const __m512i most = _mm512_set1_epi16(kMostSmall);
  const std::uint64_t is_wide = ours & bits(_mm512_cmpgt_epu16_mask(_mm512_abs_epi16(first), most),
                                            _mm512_cmpgt_epu16_mask(_mm512_abs_epi16(second), most));
  const std::uint64_t is_exception = ours & bits(_mm512_cmpneq_epi16_mask(_mm512_cvtepi8_epi16(first_bytes), first),
                                                 _mm512_cmpneq_epi16_mask(_mm512_cvtepi8_epi16(second_bytes), second));
  unsigned wide = 64 - static_cast<unsigned>(_lzcnt_u64(is_wide));
  wide += (count - wide) % 2;

  out = begin_block(mask, is_exception != 0, kind, out);
  _mm512_storeu_si512(out, bytes);
  out += wide;
  // Which of kSmallValues each is. Those above 0 are one place lower: there is no 0 among them.
  const __mmask64 above = _mm512_cmpgt_epi8_mask(bytes, _mm512_setzero_si512());
  __m512i places = _mm512_add_epi8(bytes, _mm512_set1_epi8(kMostSmall));
  places = _mm512_mask_sub_epi8(places, above, places, _mm512_set1_epi8(1));
  places = _mm512_and_si512(places, _mm512_set1_epi8(15));
  const __m512i halves = _mm512_maskz_compress_epi8(~0ull << wide, places);
  const __m512i pairs = _mm512_maddubs_epi16(halves, _mm512_set1_epi16(0x1001));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtepi16_epi8(pairs));
  out += (count - wide) / 2;
  return is_exception == 0 ? out : write_exceptions(mask, values, out);
}

}  // namespace

BlockBytesWriter avx512_block_bytes_writer() { return has_vbmi2() ? write_block : nullptr; }

}  // namespace fastpipe

#else

namespace fastpipe {

BlockBytesWriter avx512_block_bytes_writer() { return nullptr; }

}  // namespace fastpipe

#endif
