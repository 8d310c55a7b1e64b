#include "jpeg/restart_map.h"

#include <cstring>

#include "base/image.h"
#include "jpeg/markers.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fastpipe {
namespace {

// The first 0xFF before a byte that is not stuffing; null where there is none with a byte behind it.
const std::uint8_t* next_marker(const std::uint8_t* at, const std::uint8_t* end) {
  while (end - at >= 2) {
    at = static_cast<const std::uint8_t*>(std::memchr(at, 0xFF, static_cast<std::size_t>(end - at - 1)));
    if (at == nullptr || at[1] != marker::kStuffing) return at;
    at += 2;
  }
  return nullptr;
}

#if defined(__x86_64__)

// Tells stuffed bytes from markers without a branch: most 0xFF are stuffed.
__attribute__((target("avx2,bmi"))) const std::uint8_t* next_marker_avx2(const std::uint8_t* at,
                                                                         const std::uint8_t* end) {
  constexpr std::ptrdiff_t kStep = 32;
  const __m256i all_ones = _mm256_set1_epi8(-1), stuffing = _mm256_setzero_si256();
  for (; end - at > kStep; at += kStep) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    const __m256i behind = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 1));
    const __m256i found = _mm256_andnot_si256(_mm256_cmpeq_epi8(behind, stuffing), _mm256_cmpeq_epi8(bytes, all_ones));
    const auto places = static_cast<unsigned>(_mm256_movemask_epi8(found));
    if (places != 0) return at + __builtin_ctz(places);
  }
  return next_marker(at, end);
}

#endif

using NextMarker = const std::uint8_t* (*)(const std::uint8_t* at, const std::uint8_t* end);

NextMarker best_search() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi")) return next_marker_avx2;
#endif
  return next_marker;
}

}  // namespace

bool RestartMap::find(const std::uint8_t* data, std::size_t size, std::size_t intervals) {
  const NextMarker search = best_search();
  data_ = data;
  begins_.clear();
  give_back_if_giant(&begins_);
  if (intervals > size) return false;  // each has a byte at least; and no allocation is larger than the file
  begins_.reserve(intervals + 1);
  begins_.push_back(0);
  const std::uint8_t* at = data;
  while (begins_.size() <= intervals) {
    at = search(at, data + size);
    if (at == nullptr) break;
    const bool last = begins_.size() == intervals;
    const auto expected = last ? marker::kEnd : static_cast<std::uint8_t>(marker::kRestart + (begins_.size() - 1) % 8);
    if (at[1] != expected) break;
    at += 2;
    begins_.push_back(static_cast<std::size_t>(at - data));
  }
  if (begins_.size() == intervals + 1) return true;
  begins_.clear();
  return false;
}

}  // namespace fastpipe
