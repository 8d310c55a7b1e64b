// The reference of the inverse DCTs, in the arithmetic that vector instructions have: products and their sums in 32
// bits that wrap around, inputs in 16 bits that wrap around, results of a pass saturated to 16 bits.
#include <algorithm>

#include "jpeg/decode/idct.h"
#include "jpeg/decode/idct_multipliers.h"

namespace fastpipe {
namespace {

using Word = std::uint32_t;

Word product(int value, int multiplier) { return static_cast<Word>(value * multiplier); }

std::int16_t sum16(int a, int b) { return static_cast<std::int16_t>(a + b); }

std::int16_t rounded(Word value, int shift) {
  const int shifted = static_cast<std::int32_t>(value + (Word{1} << (shift - 1))) >> shift;
  return static_cast<std::int16_t>(std::clamp(shifted, -32768, 32767));
}

std::uint8_t pixel(int value) { return static_cast<std::uint8_t>(std::clamp(value, -128, 127) + 128); }

// Eight inputs -> eight outputs, `step` elements apart, in place.
void transform_8(std::int16_t* v, int step, int shift) {
  const auto in = [v, step](int i) { return v[i * step]; };
  const std::int16_t odd_a = sum16(in(7), in(3)), odd_b = sum16(in(5), in(1));
  const Word z3 = product(odd_a, k1_175 - k1_961) + product(odd_b, k1_175);
  const Word z4 = product(odd_a, k1_175) + product(odd_b, k1_175 - k0_390);
  const Word odd[4] = {product(in(7), -k0_899) + product(in(1), k1_501 - k0_899) + z4,
                       product(in(5), -k2_562) + product(in(3), k3_072 - k2_562) + z3,
                       product(in(5), k2_053 - k2_562) + product(in(3), -k2_562) + z4,
                       product(in(7), k0_298 - k0_899) + product(in(1), -k0_899) + z3};
  const Word sum = product(sum16(in(0), in(4)), 1 << kConstBits);
  const Word difference = product(sum16(in(0), -in(4)), 1 << kConstBits);
  const Word even_a = product(in(2), k0_541 + k0_765) + product(in(6), k0_541);
  const Word even_b = product(in(2), k0_541) + product(in(6), k0_541 - k1_847);
  const Word even[4] = {sum + even_a, difference + even_b, difference - even_b, sum - even_a};
  for (int i = 0; i < 4; ++i) {
    v[i * step] = rounded(even[i] + odd[i], shift);
    v[(7 - i) * step] = rounded(even[i] - odd[i], shift);
  }
}

// Eight inputs -> four outputs, as above.
void transform_4(std::int16_t* v, int step, int shift) {
  const auto in = [v, step](int i) { return v[i * step]; };
  const Word base = product(in(0), 1 << (kConstBits + 1));
  const Word swing = product(in(2), kHalf2) + product(in(6), kHalf6);
  const Word outer =
      product(in(1), kOuter1) + product(in(3), kOuter3) + product(in(5), kOuter5) + product(in(7), kOuter7);
  const Word inner =
      product(in(1), kInner1) + product(in(3), kInner3) + product(in(5), kInner5) + product(in(7), kInner7);
  v[0] = rounded(base + swing + outer, shift);
  v[step] = rounded(base - swing + inner, shift);
  v[2 * step] = rounded(base - swing - inner, shift);
  v[3 * step] = rounded(base + swing - outer, shift);
}

// Eight inputs -> two outputs, as above.
void transform_2(std::int16_t* v, int step, int shift) {
  const auto in = [v, step](int i) { return v[i * step]; };
  const Word base = product(in(0), 1 << (kConstBits + 1)) * 2;
  const Word odd =
      product(in(1), kQuarter1) + product(in(3), kQuarter3) + product(in(5), kQuarter5) + product(in(7), kQuarter7);
  v[0] = rounded(base + odd, shift);
  v[step] = rounded(base - odd, shift);
}

// One block of a pair.
struct Block {
  std::int16_t v[64];
  bool over[64];     // beyond kMostCoefficient
  bool wrapped[64];  // not the whole product, or of a step that is no 16-bit number

  Block(const std::int16_t* coefficients, const std::uint16_t* quant) {
    for (int i = 0; i < 64; ++i) {
      const int value = coefficients[i / 8 * 16 + i % 8] * static_cast<std::int16_t>(quant[i]);
      v[i] = static_cast<std::int16_t>(value);
      over[i] = std::abs(v[i]) > kMostCoefficient;
      wrapped[i] = value != v[i] || quant[i] > 32767;
    }
  }

  void store(int size, std::uint8_t* pixels, std::ptrdiff_t stride) const {
    for (int y = 0; y < size; ++y) {
      for (int x = 0; x < size; ++x) pixels[y * stride + x] = pixel(v[y * 8 + x]);
    }
  }
};

bool block_8(const std::int16_t* coefficients, const std::uint16_t* quant, std::uint8_t* pixels,
             std::ptrdiff_t stride) {
  Block block(coefficients, quant);
  for (int i = 0; i < 8; ++i) transform_8(block.v + i, 8, kFirstShift);
  for (int i = 0; i < 8; ++i) transform_8(block.v + 8 * i, 1, kLastShift);
  block.store(8, pixels, stride);
  return std::find(block.over, block.over + 8, true) == block.over + 8;  // the first row says enough
}

bool block_4(const std::int16_t* coefficients, const std::uint16_t* quant, std::uint8_t* pixels,
             std::ptrdiff_t stride) {
  Block block(coefficients, quant);
  for (int i = 0; i < 8; ++i) transform_4(block.v + i, 8, kFirstShift + 1);
  for (int i = 0; i < 4; ++i) transform_4(block.v + 8 * i, 1, kLastShift + 1);
  block.store(4, pixels, stride);
  return std::find(block.over, block.over + 64, true) == block.over + 64;
}

bool block_2(const std::int16_t* coefficients, const std::uint16_t* quant, std::uint8_t* pixels,
             std::ptrdiff_t stride) {
  constexpr int kUsed[] = {0, 1, 3, 5, 7};
  Block block(coefficients, quant);
  bool good = true;
  for (const int column : kUsed) {
    for (const int row : kUsed) good &= !block.over[8 * row + column] && !block.wrapped[8 * row + column];
    transform_2(block.v + column, 8, kFirstShift + 2);
    for (const int row : {0, 1}) good &= std::abs(block.v[8 * row + column]) <= 2 * kMostCoefficient;
  }
  for (const int row : {0, 1}) transform_2(block.v + 8 * row, 1, kLastShift + 2);
  block.store(2, pixels, stride);
  return good;
}

template <bool (*block)(const std::int16_t*, const std::uint16_t*, std::uint8_t*, std::ptrdiff_t), int kSize>
bool both(const std::int16_t* coefficients, const std::uint16_t* quant, std::uint8_t* pixels, std::ptrdiff_t stride) {
  const bool left = block(coefficients, quant, pixels, stride);
  return block(coefficients + 8, quant, pixels + kSize, stride) && left;
}

}  // namespace

const IdctKernels kScalarIdct = {"scalar", both<block_8, 8>, both<block_4, 4>, both<block_2, 2>, nullptr};

}  // namespace fastpipe
