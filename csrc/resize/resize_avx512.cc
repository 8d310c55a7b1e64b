// The resize's inner loops for x86 with AVX-512, its byte permutations (VBMI) and byte products (VNNI).
#include "resize/resize_kernels.h"

#if defined(__x86_64__)
#include "base/x86.h"

#define FASTPIPE_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")))
#define FASTPIPE_VNNI_INLINE \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni"), always_inline)) inline

namespace fastpipe {
namespace {

constexpr int kTapGroup = 4;  // whose products one instruction adds up
constexpr int kDigitBits = 8;

// A weight is d2 << 16 | d1 << 8 | d0 in digits of -128 to 127. Of four taps: {four d2, four d1, four d0, nothing}.
FASTPIPE_VNNI void arrange(std::int32_t* values, std::ptrdiff_t count) {
  const __m128i carry = _mm_set1_epi32(0x8080), sign = _mm_set1_epi32(0x8080);
  const __m128i by_digit = _mm_setr_epi8(2, 6, 10, 14, 1, 5, 9, 13, 0, 4, 8, 12, -1, -1, -1, -1);
  for (std::ptrdiff_t i = 0; i < count; i += kTapGroup) {
    auto* const four = reinterpret_cast<__m128i*>(values + i);
    const __m128i digits = _mm_xor_si128(_mm_add_epi32(_mm_loadu_si128(four), carry), sign);
    _mm_storeu_si128(four, _mm_shuffle_epi8(digits, by_digit));
  }
}

// The three digits of the weights that meet 64 bytes of input.
struct Digits {
  __m512i top, middle, low;
};

// Of the sums of the products by each digit.
struct Sums {
  __m512i top, middle, low;
};

FASTPIPE_VNNI_INLINE Sums no_sums() {
  return {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_set1_epi32(kHalf)};
}

FASTPIPE_VNNI_INLINE void add(Sums* sums, __m512i four_taps, const Digits& digits) {
  sums->top = _mm512_dpbusd_epi32(sums->top, four_taps, digits.top);
  sums->middle = _mm512_dpbusd_epi32(sums->middle, four_taps, digits.middle);
  sums->low = _mm512_dpbusd_epi32(sums->low, four_taps, digits.low);
}

FASTPIPE_VNNI_INLINE __m512i finished(const Sums& sums) {
  const __m512i upper = _mm512_add_epi32(_mm512_slli_epi32(sums.top, kDigitBits), sums.middle);
  return _mm512_srai_epi32(_mm512_add_epi32(_mm512_slli_epi32(upper, kDigitBits), sums.low), kWeightBits);
}

// The same where these taps are all: shifts the sum between the digits, which saves two additions.
template <int kGroups>
FASTPIPE_VNNI_INLINE __m512i finished_of(const __m512i* taps, const Digits* digits) {
  __m512i sum = _mm512_set1_epi32(kHalf >> (2 * kDigitBits));
  for (int g = 0; g < kGroups; ++g) sum = _mm512_dpbusd_epi32(sum, taps[g], digits[g].top);
  sum = _mm512_slli_epi32(sum, kDigitBits);
  for (int g = 0; g < kGroups; ++g) sum = _mm512_dpbusd_epi32(sum, taps[g], digits[g].middle);
  sum = _mm512_slli_epi32(sum, kDigitBits);
  for (int g = 0; g < kGroups; ++g) sum = _mm512_dpbusd_epi32(sum, taps[g], digits[g].low);
  return _mm512_srai_epi32(sum, kWeightBits);
}

FASTPIPE_VNNI_INLINE __m128i load16(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }

FASTPIPE_VNNI_INLINE __m512i load_four(const void* a, const void* b, const void* c, const void* d) {
  const __m256i left = _mm256_inserti128_si256(_mm256_castsi128_si256(load16(a)), load16(b), 1);
  const __m256i right = _mm256_inserti128_si256(_mm256_castsi128_si256(load16(c)), load16(d), 1);
  return _mm512_inserti64x4(_mm512_castsi256_si512(left), right, 1);
}

// Sorts four RGBX pixels by channel.
FASTPIPE_VNNI_INLINE __m128i by_channel() {
  return _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
}

// Four output positions' weights of a group of taps, each for four channels.
FASTPIPE_VNNI_INLINE Digits digits_across(const std::int32_t* values, int taps) {
  const __m512i all = load_four(values, values + taps, values + 2 * taps, values + 3 * taps);
  return {_mm512_shuffle_epi32(all, _MM_PERM_AAAA), _mm512_shuffle_epi32(all, _MM_PERM_BBBB),
          _mm512_shuffle_epi32(all, _MM_PERM_CCCC)};
}

// Four output positions: where their pixels are, within 64 bytes from `base` on, sorted by channel.
struct Places {
  std::ptrdiff_t base;
  __m512i bytes;
};

FASTPIPE_VNNI_INLINE bool find_places(const std::int32_t* first, Places* places) {
  constexpr int kPixels = 16;
  const int base = first[0] < first[3] ? first[0] : first[3];
  const int furthest = (first[0] < first[3] ? first[3] : first[0]) - base;
  if (furthest > kPixels - kTapGroup) return false;
  const __m128i pixels = _mm_sub_epi32(load16(first), _mm_set1_epi32(base));
  const __m128i lanes = _mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
  const __m512i starts =
      _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
                               _mm512_castsi128_si512(_mm_shuffle_epi8(_mm_slli_epi32(pixels, 2), lanes)));
  places->base = static_cast<std::ptrdiff_t>(base) * 4;
  places->bytes = _mm512_add_epi8(starts, _mm512_broadcast_i32x4(by_channel()));
  return true;
}

FASTPIPE_VNNI_INLINE __m512i gather_near(const std::uint8_t* row, const Places& places) {
  return _mm512_permutexvar_epi8(places.bytes, _mm512_loadu_si512(row + places.base));
}

// The same bytes where they lie further apart.
FASTPIPE_VNNI_INLINE __m512i gather_far(const std::uint8_t* row, const std::int32_t* first) {
  const std::ptrdiff_t at[4] = {first[0], first[1], first[2], first[3]};
  return _mm512_shuffle_epi8(load_four(row + 4 * at[0], row + 4 * at[1], row + 4 * at[2], row + 4 * at[3]),
                             _mm512_broadcast_i32x4(by_channel()));
}

template <int kChannels>
FASTPIPE_VNNI_INLINE void store_pixels(std::uint8_t* rgb, __m512i sums) {
  const __m128i drop_x = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  const __m128i pixels = _mm512_cvtusepi32_epi8(_mm512_max_epi32(sums, _mm512_setzero_si512()));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(rgb), kChannels == 3 ? _mm_shuffle_epi8(pixels, drop_x) : pixels);
}

// Of four outputs; the weights stay in registers from row to row.
template <int kChannels, int kGroups>
FASTPIPE_VNNI_INLINE void rows_across(const std::uint8_t* in, std::ptrdiff_t in_stride, int count, std::uint8_t* out,
                                      std::ptrdiff_t out_stride, const Places& places, const std::int32_t* values) {
  Digits digits[kGroups];
  for (int g = 0; g < kGroups; ++g) digits[g] = digits_across(values + g * kTapGroup, kGroups * kTapGroup);
  for (int y = 0; y < count; ++y, in += in_stride, out += out_stride) {
    __m512i pixels[kGroups];
    for (int g = 0; g < kGroups; ++g) pixels[g] = gather_near(in + 4 * kTapGroup * g, places);
    store_pixels<kChannels>(out, finished_of<kGroups>(pixels, digits));
  }
}

template <int kChannels>
FASTPIPE_VNNI void horizontal(const std::uint8_t* rgbx, std::ptrdiff_t rgbx_stride, int count, std::uint8_t* rgb,
                              std::ptrdiff_t rgb_stride, const Weights& weights) {
  for (int i = 0; i < weights.outputs; i += kOutputGroup, rgb += kChannels * kOutputGroup) {
    const std::int32_t* const first = weights.first + i;
    const std::int32_t* const values = weights.of(i);
    Places places;
    const bool near = find_places(first, &places);
    if (near && weights.taps == kTapGroup) {
      rows_across<kChannels, 1>(rgbx, rgbx_stride, count, rgb, rgb_stride, places, values);
      continue;
    }
    if (near && weights.taps == 2 * kTapGroup) {
      rows_across<kChannels, 2>(rgbx, rgbx_stride, count, rgb, rgb_stride, places, values);
      continue;
    }
    const std::uint8_t* in = rgbx;
    std::uint8_t* out = rgb;
    for (int y = 0; y < count; ++y, in += rgbx_stride, out += rgb_stride) {
      Sums sums = no_sums();
      for (int j = 0; j < weights.taps; j += kTapGroup) {
        const std::uint8_t* const from = in + 4 * j;
        add(&sums, near ? gather_near(from, places) : gather_far(from, first), digits_across(values + j, weights.taps));
      }
      store_pixels<kChannels>(out, finished(sums));
    }
  }
}

FASTPIPE_VNNI_INLINE Digits digits_down(const std::int32_t* values) {
  return {_mm512_set1_epi32(values[0]), _mm512_set1_epi32(values[1]), _mm512_set1_epi32(values[2])};
}

// 64 columns of four rows, sorted by column: the first 4 of each 16, the next 4, ...
struct Columns {
  __m512i quarters[4];
};

FASTPIPE_VNNI_INLINE Columns columns_of(const std::uint8_t* rows, std::ptrdiff_t stride) {
  const __m512i a = _mm512_loadu_si512(rows), b = _mm512_loadu_si512(rows + stride);
  const __m512i c = _mm512_loadu_si512(rows + 2 * stride), d = _mm512_loadu_si512(rows + 3 * stride);
  const __m512i ab_left = _mm512_unpacklo_epi8(a, b), ab_right = _mm512_unpackhi_epi8(a, b);
  const __m512i cd_left = _mm512_unpacklo_epi8(c, d), cd_right = _mm512_unpackhi_epi8(c, d);
  return {{_mm512_unpacklo_epi16(ab_left, cd_left), _mm512_unpackhi_epi16(ab_left, cd_left),
           _mm512_unpacklo_epi16(ab_right, cd_right), _mm512_unpackhi_epi16(ab_right, cd_right)}};
}

FASTPIPE_VNNI_INLINE void store_columns(std::uint8_t* out, int bytes, const Columns& sums) {
  const __m512i packed = _mm512_packus_epi16(_mm512_packs_epi32(sums.quarters[0], sums.quarters[1]),
                                             _mm512_packs_epi32(sums.quarters[2], sums.quarters[3]));
  if (bytes >= 64) {
    _mm512_storeu_si512(out, packed);
  } else {
    _mm512_mask_storeu_epi8(out, (1ULL << bytes) - 1, packed);
  }
}

template <int kGroups>
FASTPIPE_VNNI_INLINE void row_down(const std::uint8_t* rows, std::ptrdiff_t stride, const std::int32_t* values,
                                   std::uint8_t* out, int bytes) {
  Digits digits[kGroups];
  for (int g = 0; g < kGroups; ++g) digits[g] = digits_down(values + g * kTapGroup);
  for (int x = 0; x < bytes; x += 64) {
    Columns columns[kGroups], sums;
    for (int g = 0; g < kGroups; ++g) columns[g] = columns_of(rows + x + g * kTapGroup * stride, stride);
    for (int q = 0; q < 4; ++q) {
      __m512i taps[kGroups];
      for (int g = 0; g < kGroups; ++g) taps[g] = columns[g].quarters[q];
      sums.quarters[q] = finished_of<kGroups>(taps, digits);
    }
    store_columns(out + x, bytes - x, sums);
  }
}

FASTPIPE_VNNI void vertical(const std::uint8_t* rows, std::ptrdiff_t stride, const std::int32_t* values, int taps,
                            std::uint8_t* out, int bytes) {
  if (taps == kTapGroup) return row_down<1>(rows, stride, values, out, bytes);
  if (taps == 2 * kTapGroup) return row_down<2>(rows, stride, values, out, bytes);
  for (int x = 0; x < bytes; x += 64) {
    Sums sums[4] = {no_sums(), no_sums(), no_sums(), no_sums()};
    for (int j = 0; j < taps; j += kTapGroup) {
      const Columns columns = columns_of(rows + x + j * stride, stride);
      const Digits digits = digits_down(values + j);
      for (int q = 0; q < 4; ++q) add(&sums[q], columns.quarters[q], digits);
    }
    store_columns(out + x, bytes - x, {{finished(sums[0]), finished(sums[1]), finished(sums[2]), finished(sums[3])}});
  }
}

constexpr ResizeKernels kKernels = {"avx512", kTapGroup, arrange, horizontal<3>, horizontal<4>, vertical};

}  // namespace

const ResizeKernels* avx512_kernels() {
  const bool present = has_avx512() && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
                       __builtin_cpu_supports("avx512vnni");
  return present ? &kKernels : nullptr;
}

}  // namespace fastpipe

#else

namespace fastpipe {

const ResizeKernels* avx512_kernels() { return nullptr; }

}  // namespace fastpipe

#endif
