// The resize's inner loops for x86 with AVX2.
#include <algorithm>
#include <cstring>

#include "resize/resize_kernels.h"

#if defined(__x86_64__)
#include "base/x86.h"

namespace fastpipe {
namespace {

// A weight's upper bits with its sign, which fit 16 since no weight is near 2, and its lower 8: the products are of
// 16-bit numbers.
constexpr int kLowerBits = 8;

// Of two taps: {lower halves of 32 bits: tap 0, upper halves: tap 1} of the upper parts, then of the lower parts.
FASTPIPE_AVX2 void arrange(std::int32_t* values, std::ptrdiff_t count) {
  constexpr std::int32_t kLowerMask = (1 << kLowerBits) - 1, kUpperMask = (1 << 16) - 1;
  for (std::ptrdiff_t i = 0; i < count; i += 2) {
    const std::int32_t a = values[i], b = values[i + 1];
    values[i] = (a >> kLowerBits & kUpperMask) | (b >> kLowerBits) * (1 << 16);
    values[i + 1] = (a & kLowerMask) | (b & kLowerMask) << 16;
  }
}

FASTPIPE_AVX2_INLINE __m128i load16(const std::uint8_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

FASTPIPE_AVX2_INLINE __m256i load32(const std::uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

FASTPIPE_AVX2_INLINE __m256i load16_twice(const std::uint8_t* low, const std::uint8_t* high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(load16(low)), load16(high), 1);
}

// The sums of the products of one output position's upper and lower weights.
struct Sums {
  __m256i upper, lower;
};

FASTPIPE_AVX2_INLINE void add(Sums* sums, __m256i pairs, const std::int32_t* values) {
  sums->upper = _mm256_add_epi32(sums->upper, _mm256_madd_epi16(pairs, _mm256_set1_epi32(values[0])));
  sums->lower = _mm256_add_epi32(sums->lower, _mm256_madd_epi16(pairs, _mm256_set1_epi32(values[1])));
}

FASTPIPE_AVX2_INLINE __m256i finished(Sums sums) {
  return _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(sums.upper, kLowerBits), sums.lower), kWeightBits);
}

// Pixels of two rows -> one output pixel of each, in 32 bits a channel.
template <int kPairs>
FASTPIPE_AVX2_INLINE __m256i output_pixels(const std::uint8_t* low, const std::uint8_t* high,
                                           const std::int32_t* values, int pairs) {
  const __m256i first = _mm256_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1,  //
                                         0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1);
  const __m256i second = _mm256_setr_epi8(8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1,  //
                                          8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1);
  Sums sums = {_mm256_setzero_si256(), _mm256_set1_epi32(kHalf)};
  if (kPairs > 0) pairs = kPairs;
  for (int p = 0; p + 1 < pairs; p += 2) {
    const __m256i four = load16_twice(low + 8 * p, high + 8 * p);
    add(&sums, _mm256_shuffle_epi8(four, first), values + 2 * p);
    add(&sums, _mm256_shuffle_epi8(four, second), values + 2 * p + 2);
  }
  if (pairs % 2 != 0) {
    const int p = pairs - 1;
    add(&sums, _mm256_shuffle_epi8(load16_twice(low + 8 * p, high + 8 * p), first), values + 2 * p);
  }
  return finished(sums);
}

template <int kChannels, int kPairs, int kRows>
FASTPIPE_AVX2_INLINE void rows_across(const std::uint8_t* const* in, std::uint8_t* const* out, const Weights& weights) {
  const __m256i drop_x = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,  //
                                          0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  const std::int32_t* values = weights.values;
  for (int i = 0; i < weights.outputs; i += kOutputGroup) {
    __m256i pixels[kOutputGroup][kRows / 2];
    for (int k = 0; k < kOutputGroup; ++k, values += weights.taps) {
      const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(weights.first[i + k]) * 4;
      for (int r = 0; r < kRows; r += 2) {
        pixels[k][r / 2] = output_pixels<kPairs>(in[r] + at, in[r + 1] + at, values, weights.taps / 2);
      }
    }
    for (int r = 0; r < kRows; r += 2) {
      const __m256i left = _mm256_packs_epi32(pixels[0][r / 2], pixels[1][r / 2]);
      const __m256i right = _mm256_packs_epi32(pixels[2][r / 2], pixels[3][r / 2]);
      __m256i packed = _mm256_packus_epi16(left, right);
      if (kChannels == 3) packed = _mm256_shuffle_epi8(packed, drop_x);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out[r] + kChannels * i), _mm256_castsi256_si128(packed));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out[r + 1] + kChannels * i), _mm256_extracti128_si256(packed, 1));
    }
  }
}

template <int kChannels, int kPairs>
FASTPIPE_AVX2 void across(const std::uint8_t* rgbx, std::ptrdiff_t rgbx_stride, int count, std::uint8_t* rgb,
                          std::ptrdiff_t rgb_stride, const Weights& weights) {
  constexpr int kRows = 4;
  for (int y = 0; y < count; y += kRows) {
    const std::uint8_t* in[kRows];
    std::uint8_t* out[kRows];
    for (int r = 0; r < kRows; ++r) {  // beyond the last row, the last row again
      in[r] = rgbx + std::min(y + r, count - 1) * rgbx_stride;
      out[r] = rgb + std::min(y + r, count - 1) * rgb_stride;
    }
    if (count - y > 2) {
      rows_across<kChannels, kPairs, kRows>(in, out, weights);
    } else {
      rows_across<kChannels, kPairs, 2>(in, out, weights);
    }
  }
}

template <int kChannels>
void horizontal(const std::uint8_t* rgbx, std::ptrdiff_t rgbx_stride, int count, std::uint8_t* rgb,
                std::ptrdiff_t rgb_stride, const Weights& weights) {
  switch (weights.taps) {
    case 2:
      return across<kChannels, 1>(rgbx, rgbx_stride, count, rgb, rgb_stride, weights);
    case 4:
      return across<kChannels, 2>(rgbx, rgbx_stride, count, rgb, rgb_stride, weights);
    case 6:
      return across<kChannels, 3>(rgbx, rgbx_stride, count, rgb, rgb_stride, weights);
    default:
      return across<kChannels, 0>(rgbx, rgbx_stride, count, rgb, rgb_stride, weights);
  }
}

// 32 bytes of the output row.
template <int kPairs>
FASTPIPE_AVX2_INLINE __m256i block_down(const std::uint8_t* rows, std::ptrdiff_t stride, const std::int32_t* values,
                                        int pairs) {
  const __m256i zero = _mm256_setzero_si256();
  Sums sums[4];
  for (Sums& each : sums) each = {zero, _mm256_set1_epi32(kHalf)};
  if (kPairs > 0) pairs = kPairs;
  for (int p = 0; p < pairs; ++p, rows += 2 * stride, values += 2) {
    const __m256i a = load32(rows), b = load32(rows + stride);
    const __m256i left = _mm256_unpacklo_epi8(a, b), right = _mm256_unpackhi_epi8(a, b);
    add(&sums[0], _mm256_unpacklo_epi8(left, zero), values);
    add(&sums[1], _mm256_unpackhi_epi8(left, zero), values);
    add(&sums[2], _mm256_unpacklo_epi8(right, zero), values);
    add(&sums[3], _mm256_unpackhi_epi8(right, zero), values);
  }
  return _mm256_packus_epi16(_mm256_packs_epi32(finished(sums[0]), finished(sums[1])),
                             _mm256_packs_epi32(finished(sums[2]), finished(sums[3])));
}

template <int kPairs>
FASTPIPE_AVX2 void down(const std::uint8_t* rows, std::ptrdiff_t stride, const std::int32_t* values, int taps,
                        std::uint8_t* out, int bytes) {
  constexpr int kBlock = 32;
  int x = 0;
  for (; x + kBlock <= bytes; x += kBlock) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x), block_down<kPairs>(rows + x, stride, values, taps / 2));
  }
  if (x == bytes) return;
  std::uint8_t last[kBlock];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(last), block_down<kPairs>(rows + x, stride, values, taps / 2));
  std::memcpy(out + x, last, static_cast<std::size_t>(bytes - x));
}

void vertical(const std::uint8_t* rows, std::ptrdiff_t stride, const std::int32_t* values, int taps, std::uint8_t* out,
              int bytes) {
  switch (taps) {
    case 2:
      return down<1>(rows, stride, values, taps, out, bytes);
    case 4:
      return down<2>(rows, stride, values, taps, out, bytes);
    default:
      return down<0>(rows, stride, values, taps, out, bytes);
  }
}

constexpr ResizeKernels kKernels = {"avx2", 2, arrange, horizontal<3>, horizontal<4>, vertical};

}  // namespace

const ResizeKernels* avx2_kernels() { return has_avx2() ? &kKernels : nullptr; }

}  // namespace fastpipe

#else

namespace fastpipe {

const ResizeKernels* avx2_kernels() { return nullptr; }

}  // namespace fastpipe

#endif
