#include "resize_kernels.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fastpipe {
namespace {

constexpr std::uint32_t kHalf = 1u << (kWeightBits - 1);

// The weight of tap j, put together again.
std::uint32_t weight_at(const SplitWeight* values, int j) {
  const SplitWeight* pair = values + j / 2 * 4;
  return (static_cast<std::uint32_t>(pair[j % 2]) << kLowerBits) + static_cast<std::uint32_t>(pair[2 + j % 2]);
}

std::uint8_t finished(std::uint32_t sum) {
  return static_cast<std::uint8_t>(std::min<std::uint32_t>(sum >> kWeightBits, 255));
}

void horizontal_scalar(const std::uint8_t* rgbx, std::uint8_t* rgb, const Weights& weights) {
  for (int i = 0; i < weights.outputs; ++i) {
    const Tap tap = weights.taps[i];
    const std::uint8_t* in = rgbx + static_cast<std::ptrdiff_t>(tap.first) * 4;
    const SplitWeight* values = weights.of(i);
    std::uint32_t red = kHalf, green = kHalf, blue = kHalf;
    for (int j = 0; j < tap.count; ++j, in += 4) {
      const std::uint32_t weight = weight_at(values, j);
      red += in[0] * weight;
      green += in[1] * weight;
      blue += in[2] * weight;
    }
    rgb[3 * i] = finished(red);
    rgb[3 * i + 1] = finished(green);
    rgb[3 * i + 2] = finished(blue);
  }
}

// Bytes [begin, bytes) of the row: the whole of it, or what a SIMD kernel leaves over.
void vertical_columns(const std::uint8_t* rows, std::ptrdiff_t stride, const SplitWeight* values, int count,
                      std::uint8_t* out, int begin, int bytes) {
  constexpr int kBlock = 64;  // sums of one block stay in the first-level cache
  for (int x = begin; x < bytes; x += kBlock) {
    const int width = std::min(kBlock, bytes - x);
    std::uint32_t sums[kBlock];
    std::fill(sums, sums + kBlock, kHalf);
    for (int j = 0; j < count; ++j) {
      const std::uint8_t* row = rows + j * stride + x;
      const std::uint32_t weight = weight_at(values, j);
      for (int i = 0; i < width; ++i) sums[i] += row[i] * weight;
    }
    for (int i = 0; i < width; ++i) out[x + i] = finished(sums[i]);
  }
}

void vertical_scalar(const std::uint8_t* rows, std::ptrdiff_t stride, const SplitWeight* values, int count,
                     std::uint8_t* out, int bytes) {
  vertical_columns(rows, stride, values, count, out, 0, bytes);
}

#if defined(__x86_64__)

#define FASTPIPE_AVX2 __attribute__((target("avx2")))

template <typename Integer>
FASTPIPE_AVX2 inline Integer load(const void* from) {
  Integer value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

FASTPIPE_AVX2 void horizontal_avx2(const std::uint8_t* rgbx, std::uint8_t* rgb, const Weights& weights) {
  // From two RGBX pixels, 16-bit pairs (R0 R1) twice, (G0 G1) twice | (B0 B1) twice, (X0 X1) twice: one of each two
  // meets the upper weights, the other the lower ones.
  const __m256i pairs = _mm256_setr_epi8(0, -1, 4, -1, 0, -1, 4, -1, 1, -1, 5, -1, 1, -1, 5, -1,  //
                                         2, -1, 6, -1, 2, -1, 6, -1, 3, -1, 7, -1, 3, -1, 7, -1);
  const __m256i upper_shift = _mm256_setr_epi32(kLowerBits, 0, kLowerBits, 0, kLowerBits, 0, kLowerBits, 0);
  const __m256i half = _mm256_set1_epi32(static_cast<int>(kHalf));
  const Tap* const end = weights.taps + weights.outputs;
  const SplitWeight* row = weights.values;
  for (const Tap* tap = weights.taps; tap != end; ++tap, row += 2 * weights.per_output, rgb += 3) {
    const std::uint8_t* in = rgbx + static_cast<std::ptrdiff_t>(tap->first) * 4;
    const SplitWeight* values = row;
    __m256i sum = _mm256_setzero_si256();
    for (int left = tap->count; left > 0; left -= 2, in += 8, values += 4) {
      const __m256i two = _mm256_shuffle_epi8(_mm256_set1_epi64x(load<long long>(in)), pairs);
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(two, _mm256_set1_epi64x(load<long long>(values))));
    }
    sum = _mm256_sllv_epi32(sum, upper_shift);
    sum = _mm256_hadd_epi32(sum, sum);  // R G R G | B X B X
    sum = _mm256_srai_epi32(_mm256_add_epi32(sum, half), kWeightBits);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    const __m128i bytes = _mm_packus_epi16(words, words);  // R G R G B X B X ...
    const std::int32_t pixel = _mm_cvtsi128_si32(_mm_shufflelo_epi16(bytes, _MM_SHUFFLE(3, 1, 2, 0)));
    std::memcpy(rgb, &pixel, sizeof pixel);  // the next pixel covers the X
  }
}

FASTPIPE_AVX2 void vertical_avx2(const std::uint8_t* rows, std::ptrdiff_t stride, const SplitWeight* values, int count,
                                 std::uint8_t* out, int bytes) {
  constexpr int kBlock = 16;
  const __m256i half = _mm256_set1_epi32(static_cast<int>(kHalf));
  const __m256i zero = _mm256_setzero_si256();
  int x = 0;
  for (; x + kBlock <= bytes; x += kBlock) {
    __m256i left_upper = zero, left_lower = half, right_upper = zero, right_lower = half;
    const std::uint8_t* row = rows + x;
    for (int j = 0; j < count; j += 2, row += 2 * stride) {
      const __m256i a = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row)));
      const __m256i b = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + stride)));
      const __m256i left = _mm256_unpacklo_epi16(a, b), right = _mm256_unpackhi_epi16(a, b);
      const __m256i upper = _mm256_set1_epi32(load<int>(values + 2 * j));
      const __m256i lower = _mm256_set1_epi32(load<int>(values + 2 * j + 2));
      left_upper = _mm256_add_epi32(left_upper, _mm256_madd_epi16(left, upper));
      left_lower = _mm256_add_epi32(left_lower, _mm256_madd_epi16(left, lower));
      right_upper = _mm256_add_epi32(right_upper, _mm256_madd_epi16(right, upper));
      right_lower = _mm256_add_epi32(right_lower, _mm256_madd_epi16(right, lower));
    }
    const __m256i left = _mm256_add_epi32(_mm256_slli_epi32(left_upper, kLowerBits), left_lower);
    const __m256i right = _mm256_add_epi32(_mm256_slli_epi32(right_upper, kLowerBits), right_lower);
    const __m256i words =
        _mm256_packs_epi32(_mm256_srai_epi32(left, kWeightBits), _mm256_srai_epi32(right, kWeightBits));
    const __m128i packed = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + x), packed);
  }
  vertical_columns(rows, stride, values, count, out, x, bytes);
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
