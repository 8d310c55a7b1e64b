#include "coefficients/block_bytes.h"

#if defined(__x86_64__)
#include "base/x86.h"
#include "coefficients/block_row.h"

namespace fastpipe {
namespace {

constexpr unsigned kStep = 32;

// Two vectors of 16 bits -> one of bytes, in order.
FASTPIPE_AVX2 inline __m256i bytes_of(__m256i first, __m256i second) {
  const __m256i low = _mm256_set1_epi16(0xFF);
  const __m256i mixed = _mm256_packus_epi16(_mm256_and_si256(first, low), _mm256_and_si256(second, low));
  return _mm256_permute4x64_epi64(mixed, 0xD8);
}

// Which of kSmallValues each is. Those above 0 are one place lower: there is no 0 among them.
FASTPIPE_AVX2 inline __m256i small(__m256i values) {
  const __m256i above = _mm256_cmpgt_epi16(values, _mm256_setzero_si256());
  const __m256i places = _mm256_add_epi16(_mm256_add_epi16(values, _mm256_set1_epi16(kMostSmall)), above);
  return _mm256_and_si256(places, _mm256_set1_epi16(15));
}

FASTPIPE_AVX2 inline __m256i load(const std::int16_t* values) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values));
}

FASTPIPE_AVX2 std::uint8_t* write_block(std::uint64_t mask, const std::int16_t* values, unsigned* kind,
                                        std::uint8_t* out) {
  const auto count = static_cast<unsigned>(__builtin_popcountll(mask));
  std::uint64_t is_wide = 0, is_exception = 0;
  for (unsigned i = 0; i < count; i += kStep) {
    const __m256i first = load(values + i), second = load(values + i + 16), most = _mm256_set1_epi16(kMostSmall);
    const __m256i wide =
        bytes_of(_mm256_cmpgt_epi16(_mm256_abs_epi16(first), most), _mm256_cmpgt_epi16(_mm256_abs_epi16(second), most));
    const __m256i low_first = _mm256_srai_epi16(_mm256_slli_epi16(first, 8), 8);
    const __m256i low_second = _mm256_srai_epi16(_mm256_slli_epi16(second, 8), 8);
    const __m256i fits = bytes_of(_mm256_cmpeq_epi16(first, low_first), _mm256_cmpeq_epi16(second, low_second));
    is_wide |= std::uint64_t{static_cast<std::uint32_t>(_mm256_movemask_epi8(wide))} << i;
    is_exception |= std::uint64_t{~static_cast<std::uint32_t>(_mm256_movemask_epi8(fits))} << i;
  }
  const std::uint64_t ours = _bzhi_u64(~0ull, count);
  is_wide &= ours;
  const bool exceptions = (is_exception & ours) != 0;
  unsigned wide = is_wide == 0 ? 0 : 64 - static_cast<unsigned>(__builtin_clzll(is_wide));
  wide += (count - wide) % 2;

  out = begin_block(mask, exceptions, kind, out);
  for (unsigned i = 0; i < wide; i += kStep) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), bytes_of(load(values + i), load(values + i + 16)));
  }
  out += wide;
  for (unsigned i = wide; i < count; i += kStep) {
    const __m256i halves = bytes_of(small(load(values + i)), small(load(values + i + 16)));
    const __m256i pairs = _mm256_maddubs_epi16(halves, _mm256_set1_epi16(0x1001));
    const __m128i packed = _mm_packus_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + (i - wide) / 2), packed);
  }
  out += (count - wide) / 2;
  return exceptions ? write_exceptions(mask, values, out) : out;
}

}  // namespace

BlockBytesWriter avx2_block_bytes_writer() { return has_avx2() ? write_block : nullptr; }

}  // namespace fastpipe

#else

namespace fastpipe {

BlockBytesWriter avx2_block_bytes_writer() { return nullptr; }

}  // namespace fastpipe

#endif
