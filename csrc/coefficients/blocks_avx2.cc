#include "coefficients/block_kernels.h"

#if defined(__x86_64__)
#include "base/x86.h"
#include "coefficients/zigzag_tables.h"
#include "jpeg/decode/coefficient_rows.h"

namespace fastpipe {
namespace {

constexpr int kQuarters = 4;  // of the zigzag, 16 places each
constexpr int kRowPairs = 4;

// Which of a quarter's values go where in two rows, each into the upper half of its 16 bits.
struct Places {
  alignas(32) std::uint8_t of[kQuarters][kRowPairs][32];
  constexpr Places() : of() {
    for (auto& quarter : of) {
      for (auto& rows : quarter) {
        for (std::uint8_t& place : rows) place = kNowhere;
      }
    }
    for (std::size_t i = 0; i < 64; ++i) {
      const std::size_t zigzag = kRowsToZigzag.of[i];
      of[zigzag / 16][i / 16][2 * (i % 16) + 1] = static_cast<std::uint8_t>(zigzag % 16);
    }
  }
};
constexpr Places kPlaces;

// All values in bytes, in the order of the zigzag, without zeros between them. Up to 32 more are written.
FASTPIPE_AVX2 inline void unpack(const BlockParts& parts, std::uint8_t* values) {
  const auto load = [&](unsigned from) FASTPIPE_AVX2 {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(parts.values + from));
  };
  const auto store = [&](unsigned at, __m256i bytes)
                         FASTPIPE_AVX2 { _mm256_storeu_si256(reinterpret_cast<__m256i*>(values + at), bytes); };
  store(0, load(0));
  if (parts.wide > 32) store(32, load(32));
  const __m128i known = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kSmallValues));
  unsigned at = parts.wide, from = parts.wide;
  do {  // most blocks have some, and no more than fit
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(parts.values + from));
    __m256i small = _mm256_cvtepu8_epi16(halves);
    small = _mm256_and_si256(_mm256_or_si256(small, _mm256_slli_epi16(small, 4)), _mm256_set1_epi8(15));
    store(at, _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(known), small));
    at += 32;
    from += 16;
  } while (__builtin_expect(at < parts.count, 0));
}

// The next 8 places of the zigzag.
FASTPIPE_AVX2 inline __m128i spread(unsigned bits, const std::uint8_t** values) {
  const __m128i next = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(*values));
  *values += __builtin_popcount(bits);
  return _mm_shuffle_epi8(next, _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kSpread.of[bits])));
}

FASTPIPE_AVX2 inline void read_block(const BlockParts& parts, unsigned mask_bytes, std::int16_t dc,
                                     std::int16_t* block) {
  std::uint8_t memory[160];  // 63 values where the block is good, and 63 bytes and 64 values where it is not
  unpack(parts, memory);
  const std::uint8_t* values = memory;
  std::uint64_t mask = parts.mask << 1;
  __m256i rows[kRowPairs];
  for (__m256i& each : rows) each = _mm256_setzero_si256();
  const auto add = [&](unsigned quarter) FASTPIPE_AVX2 {
    const __m128i lower = spread(mask & 0xFF, &values), upper = spread(mask >> 8 & 0xFF, &values);
    const __m256i found = _mm256_broadcastsi128_si256(_mm_unpacklo_epi64(lower, upper));
    for (int i = 0; i < kRowPairs; ++i) {
      const __m256i places = _mm256_load_si256(reinterpret_cast<const __m256i*>(kPlaces.of[quarter][i]));
      rows[i] = _mm256_or_si256(rows[i], _mm256_shuffle_epi8(found, places));
    }
    mask >>= 16;
  };
  add(0);
  add(1);
  if (mask_bytes >= 4) {
    add(2);
    add(3);
  }
  const __m256i mean = _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<std::uint16_t>(dc)));
  for (int i = 0; i < kRowPairs; ++i) {
    __m256i both = _mm256_srai_epi16(rows[i], 8);
    if (i == 0) both = _mm256_or_si256(both, mean);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(block + 32 * i), _mm256_castsi256_si128(both));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(block + 32 * i + 16), _mm256_extracti128_si256(both, 1));
  }
}

FASTPIPE_AVX2 bool read(const BlockRow& row, const std::uint8_t* at, int first, int count, const std::int16_t* dc,
                        std::int16_t* pairs) {
  unsigned bad = 0;
  const CoefficientRows out = {pairs, 0};
  for (int i = 0; i < count; ++i) {
    const unsigned kind = row.kind(static_cast<unsigned>(first + i));
    const unsigned length = row.lengths[first + i];
    std::int16_t* const block = out.block(0, i);
    const BlockParts parts = take_apart(at, length, kind);
    read_block(parts, kMaskBytes[kind], dc[i], block);
    bad |= parts.bad;
    if (__builtin_expect(kind > kMostMaskBytes && bad == 0, 0)) bad |= !add_exceptions(at, length, block);
    at += length;
  }
  if (count % 2 != 0) {
    const BlockParts none = {0, at, 0, 0, 0};
    read_block(none, 0, 0, out.block(0, count));
  }
  return bad == 0;
}

constexpr BlockKernels kAvx2Blocks = {"avx2", read};

}  // namespace

const BlockKernels* avx2_blocks() { return has_avx2() ? &kAvx2Blocks : nullptr; }

}  // namespace fastpipe

#else

namespace fastpipe {

const BlockKernels* avx2_blocks() { return nullptr; }

}  // namespace fastpipe

#endif
