// IEEE 754's float16 in its 16 bits <-> float32. Compilers before GCC 13 have no such type for C++.
#pragma once

#include <cstdint>
#include <cstring>

namespace fastpipe {

inline float float_of_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7FFFU;
  // float32 has 13 more bits of fraction, and an exponent that is 112 larger. A product by a power of two sets the
  // exponent, also of subnormal numbers.
  std::uint32_t bits = magnitude << 13;
  float number;
  std::memcpy(&number, &bits, sizeof number);
  number *= 0x1p112F;
  std::memcpy(&bits, &number, sizeof bits);
  constexpr std::uint32_t kInfinity = 0x7F800000U;
  if (magnitude >= 0x7C00U) bits = kInfinity | (magnitude & 0x3FFU) << 13;  // infinity, or no number
  bits |= sign;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

// Rounded to the nearest; of two that are as near, to the even one.
inline std::uint16_t half_of_float(float number) {
  std::uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<std::uint16_t>(sign | 0x7E00U);   // no number
  if (magnitude >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7C00U);  // rounds to 65536, or is beyond
  if (magnitude < 0x38800000U) {
    // Subnormal: a whole number of 2^-24. An addition of float32 rounds it to one.
    float small;
    std::memcpy(&small, &magnitude, sizeof small);
    small += 0.5F;
    std::uint32_t rounded;
    std::memcpy(&rounded, &small, sizeof rounded);
    return static_cast<std::uint16_t>(sign | (rounded - 0x3F000000U));
  }
  const std::uint32_t odd = magnitude >> 13 & 1U;
  const std::uint32_t rounded = magnitude + 0xFFFU + odd;
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

}  // namespace fastpipe
