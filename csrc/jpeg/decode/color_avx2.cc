#include "jpeg/decode/color.h"

#if defined(__x86_64__)
#include "base/x86.h"

namespace fastpipe {
namespace {

FASTPIPE_AVX2 inline __m256i load16(const std::uint8_t* from) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
FASTPIPE_AVX2 inline __m256i load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
FASTPIPE_AVX2 inline void store(void* to, __m256i value) { _mm256_storeu_si256(static_cast<__m256i*>(to), value); }

FASTPIPE_AVX2 inline __m256i three_times(__m256i value) {
  return _mm256_add_epi16(_mm256_add_epi16(value, value), value);
}

// Bytes in the lower halves of 16 bits, even and odd ones -> bytes in order.
FASTPIPE_AVX2 inline __m256i interleave(__m256i even, __m256i odd) {
  return _mm256_or_si256(even, _mm256_slli_epi16(odd, 8));
}

// round(x * m / 2^16) for |x| <= 128; x comes doubled.
FASTPIPE_AVX2 inline __m256i scaled(__m256i doubled, int multiplier) {
  const __m256i product = _mm256_mulhi_epi16(doubled, _mm256_set1_epi16(static_cast<short>(multiplier)));
  return _mm256_srai_epi16(_mm256_add_epi16(product, _mm256_set1_epi16(1)), 1);
}

FASTPIPE_AVX2 inline void store_rgbx(__m256i red, __m256i green, __m256i blue, std::uint8_t* to) {
  const __m256i red_blue = _mm256_packus_epi16(red, blue);
  const __m256i green_x = _mm256_packus_epi16(green, green);
  const __m256i red_green = _mm256_unpacklo_epi8(red_blue, green_x);
  const __m256i blue_x = _mm256_unpackhi_epi8(red_blue, green_x);
  const __m256i first = _mm256_unpacklo_epi16(red_green, blue_x);   // pixels 0-3, 8-11
  const __m256i second = _mm256_unpackhi_epi16(red_green, blue_x);  // pixels 4-7, 12-15
  store(to, _mm256_permute2x128_si256(first, second, 0x20));
  store(to + 32, _mm256_permute2x128_si256(first, second, 0x31));
}

FASTPIPE_AVX2 void twice_as_high(const std::uint8_t* near, const std::uint8_t* far, int bias, std::uint8_t* out,
                                 int count) {
  const __m256i add = _mm256_set1_epi16(static_cast<short>(bias));
  for (int i = 0; i < count; i += 32) {
    __m256i half[2];
    for (int j = 0; j < 2; ++j) {
      const __m256i sum = _mm256_add_epi16(three_times(load16(near + i + 16 * j)), load16(far + i + 16 * j));
      half[j] = _mm256_srli_epi16(_mm256_add_epi16(sum, add), 2);
    }
    store(out + i, _mm256_permute4x64_epi64(_mm256_packus_epi16(half[0], half[1]), 0xD8));
  }
}

FASTPIPE_AVX2 void three_to_one(const std::uint8_t* near, const std::uint8_t* far, std::uint16_t* out, int count) {
  for (int i = 0; i < count; i += 16) {
    store(out + i, _mm256_add_epi16(three_times(load16(near + i)), load16(far + i)));
  }
}

FASTPIPE_AVX2 void twice_as_wide(const std::uint8_t* in, std::uint8_t* out, int count) {
  const __m256i one = _mm256_set1_epi16(1), two = _mm256_set1_epi16(2);
  for (int i = 0; i < count; i += 16) {
    const __m256i near = three_times(load16(in + i));
    const __m256i even = _mm256_add_epi16(_mm256_add_epi16(near, load16(in + i - 1)), one);
    const __m256i odd = _mm256_add_epi16(_mm256_add_epi16(near, load16(in + i + 1)), two);
    store(out + 2 * i, interleave(_mm256_srli_epi16(even, 2), _mm256_srli_epi16(odd, 2)));
  }
}

FASTPIPE_AVX2 void twice_as_wide_sums(const std::uint16_t* in, std::uint8_t* out, int count) {
  const __m256i seven = _mm256_set1_epi16(7), eight = _mm256_set1_epi16(8);
  for (int i = 0; i < count; i += 16) {
    const __m256i near = three_times(load(in + i));
    const __m256i even = _mm256_add_epi16(_mm256_add_epi16(near, load(in + i - 1)), eight);
    const __m256i odd = _mm256_add_epi16(_mm256_add_epi16(near, load(in + i + 1)), seven);
    store(out + 2 * i, interleave(_mm256_srli_epi16(even, 4), _mm256_srli_epi16(odd, 4)));
  }
}

// With c = round(coefficient * 2^16), everything but whole multiples goes through a 16-bit multiplication:
//   red   = y + 1.402 cr           91881 = 65536 + 26345
//   blue  = y + 1.772 cb           116130 = 2 * 65536 - 14942
//   green = y - 0.34414 cb - 0.71414 cr    22554, 46802 = 65536 - 18734
FASTPIPE_AVX2 void ycc_to_rgbx(const std::uint8_t* y, const std::uint8_t* cb, const std::uint8_t* cr,
                               std::uint8_t* rgbx, int count) {
  const __m256i middle = _mm256_set1_epi16(128);
  const __m256i green_parts = _mm256_set1_epi32(static_cast<int>(18734u << 16 | (0x10000u - 22554u)));
  const __m256i half = _mm256_set1_epi32(1 << 15);
  for (int i = 0; i < count; i += 16) {
    const __m256i light = load16(y + i);
    const __m256i b = _mm256_sub_epi16(load16(cb + i), middle), r = _mm256_sub_epi16(load16(cr + i), middle);
    const __m256i b2 = _mm256_add_epi16(b, b), r2 = _mm256_add_epi16(r, r);
    const __m256i red = _mm256_add_epi16(_mm256_add_epi16(light, r), scaled(r2, 26345));
    const __m256i blue = _mm256_add_epi16(_mm256_add_epi16(light, b2), scaled(b2, -14942));
    const __m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi16(b, r), green_parts);
    const __m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi16(b, r), green_parts);
    const __m256i mixed = _mm256_packs_epi32(_mm256_srai_epi32(_mm256_add_epi32(low, half), 16),
                                             _mm256_srai_epi32(_mm256_add_epi32(high, half), 16));
    const __m256i green = _mm256_add_epi16(_mm256_sub_epi16(light, r), mixed);
    store_rgbx(red, green, blue, rgbx + 4 * i);
  }
}

FASTPIPE_AVX2 void gray_to_rgbx(const std::uint8_t* y, std::uint8_t* rgbx, int count) {
  for (int i = 0; i < count; i += 16) {
    const __m256i light = load16(y + i);
    store_rgbx(light, light, light, rgbx + 4 * i);
  }
}

constexpr ColorKernels kKernels = {"avx2",      twice_as_high, three_to_one, twice_as_wide, twice_as_wide_sums,
                                   ycc_to_rgbx, gray_to_rgbx};

}  // namespace

const ColorKernels* avx2_color() { return has_avx2() ? &kKernels : nullptr; }

}  // namespace fastpipe

#else

namespace fastpipe {

const ColorKernels* avx2_color() { return nullptr; }

}  // namespace fastpipe

#endif
