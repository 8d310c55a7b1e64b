#include "jpeg/unstuff.h"

#if defined(__x86_64__)
#include "base/x86.h"

namespace fastpipe {
namespace {

FASTPIPE_AVX2 std::uint8_t* unstuff(const std::uint8_t* begin, const std::uint8_t* end,
                                    const std::uint8_t* readable_end, std::uint8_t* out) {
  constexpr std::ptrdiff_t kStep = 32;
  const __m256i all_ones = _mm256_set1_epi8(-1);
  const std::uint8_t* at = begin;
  while (at < end && readable_end - at >= kStep) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), bytes);
    const auto found = static_cast<unsigned>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, all_ones)));
    const std::ptrdiff_t plain = found == 0 ? kStep : __builtin_ctz(found);
    if (end - at <= plain) return out + (end - at);
    at += plain;
    out += plain;
    if (found == 0) continue;
    if (end - at < 2 || at[1] != 0) return nullptr;
    ++out;
    at += 2;
  }
  return unstuff_scalar(at, end, readable_end, out);
}

}  // namespace

Unstuff avx2_unstuff() { return has_avx2() ? unstuff : nullptr; }

}  // namespace fastpipe

#else

namespace fastpipe {

Unstuff avx2_unstuff() { return nullptr; }

}  // namespace fastpipe

#endif
