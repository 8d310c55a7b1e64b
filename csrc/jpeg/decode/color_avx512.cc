#include "jpeg/decode/color.h"

#if defined(__x86_64__)
#include "base/x86.h"

namespace fastpipe {
namespace {

// Step by step what color_avx2.cc does, with twice as many elements.
constexpr int kStep = 32;

FASTPIPE_AVX512 inline __m512i load16(const std::uint8_t* from) {
  return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

FASTPIPE_AVX512 inline __m512i three_times(__m512i value) {
  return _mm512_add_epi16(_mm512_add_epi16(value, value), value);
}

FASTPIPE_AVX512 inline __m512i interleave(__m512i even, __m512i odd) {
  return _mm512_or_si512(even, _mm512_slli_epi16(odd, 8));
}

FASTPIPE_AVX512 inline __m512i scaled(__m512i doubled, int multiplier) {
  const __m512i product = _mm512_mulhi_epi16(doubled, _mm512_set1_epi16(static_cast<short>(multiplier)));
  return _mm512_srai_epi16(_mm512_add_epi16(product, _mm512_set1_epi16(1)), 1);
}

FASTPIPE_AVX512 inline void store_rgbx(__m512i red, __m512i green, __m512i blue, std::uint8_t* to) {
  const __m512i red_blue = _mm512_packus_epi16(red, blue);
  const __m512i green_x = _mm512_packus_epi16(green, green);
  const __m512i red_green = _mm512_unpacklo_epi8(red_blue, green_x);
  const __m512i blue_x = _mm512_unpackhi_epi8(red_blue, green_x);
  const __m512i first = _mm512_unpacklo_epi16(red_green, blue_x);   // of each 8 pixels the first 4
  const __m512i second = _mm512_unpackhi_epi16(red_green, blue_x);  // and the last 4
  const __m512i upper = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                lower = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  _mm512_storeu_si512(to, _mm512_permutex2var_epi64(first, upper, second));
  _mm512_storeu_si512(to + 64, _mm512_permutex2var_epi64(first, lower, second));
}

FASTPIPE_AVX512 void three_to_one(const std::uint8_t* near, const std::uint8_t* far, std::uint16_t* out, int count) {
  for (int i = 0; i < count; i += kStep) {
    _mm512_storeu_si512(out + i, _mm512_add_epi16(three_times(load16(near + i)), load16(far + i)));
  }
}

FASTPIPE_AVX512 void twice_as_wide(const std::uint8_t* in, std::uint8_t* out, int count) {
  const __m512i one = _mm512_set1_epi16(1), two = _mm512_set1_epi16(2);
  for (int i = 0; i < count; i += kStep) {
    const __m512i near = three_times(load16(in + i));
    const __m512i even = _mm512_add_epi16(_mm512_add_epi16(near, load16(in + i - 1)), one);
    const __m512i odd = _mm512_add_epi16(_mm512_add_epi16(near, load16(in + i + 1)), two);
    _mm512_storeu_si512(out + 2 * i, interleave(_mm512_srli_epi16(even, 2), _mm512_srli_epi16(odd, 2)));
  }
}

FASTPIPE_AVX512 void twice_as_wide_sums(const std::uint16_t* in, std::uint8_t* out, int count) {
  const __m512i seven = _mm512_set1_epi16(7), eight = _mm512_set1_epi16(8);
  for (int i = 0; i < count; i += kStep) {
    const __m512i near = three_times(_mm512_loadu_si512(in + i));
    const __m512i even = _mm512_add_epi16(_mm512_add_epi16(near, _mm512_loadu_si512(in + i - 1)), eight);
    const __m512i odd = _mm512_add_epi16(_mm512_add_epi16(near, _mm512_loadu_si512(in + i + 1)), seven);
    _mm512_storeu_si512(out + 2 * i, interleave(_mm512_srli_epi16(even, 4), _mm512_srli_epi16(odd, 4)));
  }
}

FASTPIPE_AVX512 void ycc_to_rgbx(const std::uint8_t* y, const std::uint8_t* cb, const std::uint8_t* cr,
                                 std::uint8_t* rgbx, int count) {
  const __m512i middle = _mm512_set1_epi16(128);
  const __m512i green_parts = _mm512_set1_epi32(static_cast<int>(18734u << 16 | (0x10000u - 22554u)));
  const __m512i half = _mm512_set1_epi32(1 << 15);
  for (int i = 0; i < count; i += kStep) {
    const __m512i light = load16(y + i);
    const __m512i b = _mm512_sub_epi16(load16(cb + i), middle), r = _mm512_sub_epi16(load16(cr + i), middle);
    const __m512i b2 = _mm512_add_epi16(b, b), r2 = _mm512_add_epi16(r, r);
    const __m512i red = _mm512_add_epi16(_mm512_add_epi16(light, r), scaled(r2, 26345));
    const __m512i blue = _mm512_add_epi16(_mm512_add_epi16(light, b2), scaled(b2, -14942));
    const __m512i low = _mm512_madd_epi16(_mm512_unpacklo_epi16(b, r), green_parts);
    const __m512i high = _mm512_madd_epi16(_mm512_unpackhi_epi16(b, r), green_parts);
    const __m512i mixed = _mm512_packs_epi32(_mm512_srai_epi32(_mm512_add_epi32(low, half), 16),
                                             _mm512_srai_epi32(_mm512_add_epi32(high, half), 16));
    const __m512i green = _mm512_add_epi16(_mm512_sub_epi16(light, r), mixed);
    store_rgbx(red, green, blue, rgbx + 4 * i);
  }
}

}  // namespace

const ColorKernels* avx512_color() {
  if (!has_avx512() || !has_avx2()) return nullptr;
  static const ColorKernels kernels = {
      "avx512",    avx2_color()->twice_as_high, three_to_one, twice_as_wide, twice_as_wide_sums,
      ycc_to_rgbx, avx2_color()->gray_to_rgbx};
  return &kernels;
}

}  // namespace fastpipe

#else

namespace fastpipe {

const ColorKernels* avx512_color() { return nullptr; }

}  // namespace fastpipe

#endif
