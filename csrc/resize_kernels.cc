#include "resize_kernels.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fastpipe {
namespace {

void horizontal_scalar(const std::uint8_t* rgbx, std::uint8_t* rgb, const Weights& weights) {
  const std::int32_t half = 1 << (weights.shift - 1);
  for (int i = 0; i < weights.outputs; ++i) {
    const Tap tap = weights.taps[i];
    const std::uint8_t* in = rgbx + static_cast<std::ptrdiff_t>(tap.first) * 4;
    const std::int16_t* values = weights.values + static_cast<std::ptrdiff_t>(i) * weights.per_output;
    std::int32_t red = half, green = half, blue = half;
    for (int j = 0; j < tap.count; ++j, in += 4) {
      red += in[0] * values[j];
      green += in[1] * values[j];
      blue += in[2] * values[j];
    }
    rgb[3 * i] = static_cast<std::uint8_t>(red >> weights.shift);
    rgb[3 * i + 1] = static_cast<std::uint8_t>(green >> weights.shift);
    rgb[3 * i + 2] = static_cast<std::uint8_t>(blue >> weights.shift);
  }
}

// Bytes [begin, bytes) of the row: the whole of it, or what a SIMD kernel leaves over.
void vertical_columns(const std::uint8_t* rows, std::ptrdiff_t stride, const std::int16_t* values, int count, int shift,
                      std::uint8_t* out, int begin, int bytes) {
  constexpr int kBlock = 64;  // sums of one block stay in the first-level cache
  for (int x = begin; x < bytes; x += kBlock) {
    const int width = std::min(kBlock, bytes - x);
    std::int32_t sums[kBlock];
    std::fill(sums, sums + kBlock, 1 << (shift - 1));
    for (int j = 0; j < count; ++j) {
      const std::uint8_t* row = rows + j * stride + x;
      for (int i = 0; i < width; ++i) sums[i] += row[i] * values[j];
    }
    for (int i = 0; i < width; ++i) out[x + i] = static_cast<std::uint8_t>(sums[i] >> shift);
  }
}

void vertical_scalar(const std::uint8_t* rows, std::ptrdiff_t stride, const std::int16_t* values, int count, int shift,
                     std::uint8_t* out, int bytes) {
  vertical_columns(rows, stride, values, count, shift, out, 0, bytes);
}

#if defined(__x86_64__)

#define FASTPIPE_AVX2 __attribute__((target("avx2")))

// Two weights in each 32-bit lane, for a multiply-add of neighbouring 16-bit pairs.
FASTPIPE_AVX2 inline std::int32_t weight_pair(const std::int16_t* values) {
  std::int32_t pair;
  std::memcpy(&pair, values, sizeof pair);
  return pair;
}

FASTPIPE_AVX2 void horizontal_avx2(const std::uint8_t* rgbx, std::uint8_t* rgb, const Weights& weights) {
  // From two RGBX pixels, 16-bit pairs (R0 R1) (G0 G1) (B0 B1) (X0 X1).
  const __m128i pairs = _mm_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1);
  const __m128i half = _mm_set1_epi32(1 << (weights.shift - 1));
  const __m128i shift = _mm_cvtsi32_si128(weights.shift);
  const std::int16_t* values = weights.values;
  for (int i = 0; i < weights.outputs; ++i, values += weights.per_output) {
    const Tap tap = weights.taps[i];
    const std::uint8_t* in = rgbx + static_cast<std::ptrdiff_t>(tap.first) * 4;
    __m128i sum = half;
    for (int j = 0; j < tap.count; j += 2) {
      const __m128i two = _mm_shuffle_epi8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(in + 4 * j)), pairs);
      sum = _mm_add_epi32(sum, _mm_madd_epi16(two, _mm_set1_epi32(weight_pair(values + j))));
    }
    sum = _mm_sra_epi32(sum, shift);
    sum = _mm_packs_epi32(sum, sum);
    const std::int32_t pixel = _mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
    std::memcpy(rgb + 3 * static_cast<std::ptrdiff_t>(i), &pixel,
                sizeof pixel);  // the next pixel covers the fourth byte
  }
}

FASTPIPE_AVX2 void vertical_avx2(const std::uint8_t* rows, std::ptrdiff_t stride, const std::int16_t* values, int count,
                                 int shift, std::uint8_t* out, int bytes) {
  constexpr int kBlock = 16;
  const __m256i half = _mm256_set1_epi32(1 << (shift - 1));
  const __m128i shift_by = _mm_cvtsi32_si128(shift);
  int x = 0;
  for (; x + kBlock <= bytes; x += kBlock) {
    __m256i low = half, high = half;
    const std::uint8_t* row = rows + x;
    for (int j = 0; j < count; j += 2, row += 2 * stride) {
      const __m256i a = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row)));
      const __m256i b = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + stride)));
      const __m256i weight = _mm256_set1_epi32(weight_pair(values + j));
      low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), weight));
      high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), weight));
    }
    const __m256i words = _mm256_packs_epi32(_mm256_sra_epi32(low, shift_by), _mm256_sra_epi32(high, shift_by));
    const __m128i packed = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + x), packed);
  }
  vertical_columns(rows, stride, values, count, shift, out, x, bytes);
}

#endif

}  // namespace

const ResizeKernels* scalar_kernels() {
  static const ResizeKernels kernels = {"scalar", horizontal_scalar, vertical_scalar};
  return &kernels;
}

const ResizeKernels* avx2_kernels() {
#if defined(__x86_64__)
  static const ResizeKernels kernels = {"avx2", horizontal_avx2, vertical_avx2};
  return __builtin_cpu_supports("avx2") ? &kernels : nullptr;
#else
  return nullptr;
#endif
}

const ResizeKernels* best_kernels() {
  const ResizeKernels* avx2 = avx2_kernels();
  return avx2 != nullptr ? avx2 : scalar_kernels();
}

}  // namespace fastpipe
