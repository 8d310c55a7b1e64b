#include <algorithm>

#include "jpeg/decode/idct.h"

namespace fastpipe {
namespace {

std::uint8_t pixel(int value) { return static_cast<std::uint8_t>(std::clamp(value + 128, 0, 255)); }

int descale(int value, int bits) { return (value + (1 << (bits - 1))) >> bits; }

// Above this libjpeg's table of pixels begins again from black.
constexpr int kMostAlone = 4091;

// A pixel a block: the same for all kernels.
bool idct_pair_1(const std::int16_t* coefficients, const std::uint16_t* quant, std::uint8_t* pixels, std::ptrdiff_t) {
  const int left = coefficients[0] * quant[0], right = coefficients[8] * quant[0];
  pixels[0] = pixel(descale(left, 3));
  pixels[1] = pixel(descale(right, 3));
  return std::max({left, -left, right, -right}) <= kMostAlone;
}

}  // namespace

IdctPair IdctKernels::pair(int size) const {
  switch (size) {
    case 1:
      return idct_pair_1;
    case 2:
      return at_2;
    case 4:
      return at_4;
    default:
      return at_8;
  }
}

std::vector<const IdctKernels*> all_idct_kernels() {
  std::vector<const IdctKernels*> all;
  for (const IdctKernels* kernels : {&kScalarIdct, neon_idct(), avx2_idct(), avx512_idct()}) {
    if (kernels != nullptr) all.push_back(kernels);
  }
  return all;
}

const IdctKernels* best_idct_kernels() {
  static const IdctKernels* const best = all_idct_kernels().back();
  return best;
}

}  // namespace fastpipe
