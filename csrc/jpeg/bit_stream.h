// Bytes -> bits, from the top bit down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

// For what reads bits: shifts by a variable count take one operation then. Only where can_read_bits().
#if defined(__x86_64__)
#define FASTPIPE_BMI2 __attribute__((target("bmi,bmi2")))
#else
#define FASTPIPE_BMI2
#endif

namespace fastpipe {

// Whether this machine has what FASTPIPE_BMI2 stands for.
inline bool can_read_bits() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
#else
  return true;
#endif
}

// Bytes without stuffing, read from the top bit down. At least kReadBeyond bytes after the end are readable.
struct BitStream {
  static constexpr std::ptrdiff_t kReadBeyond = 16384;  // what 64 blocks of 248 bytes can take, and some words

  std::uint64_t bits = 0;  // the next ones, on top
  unsigned count = 0;      // how many of them count; what lies below may be there already
  const std::uint8_t* next = nullptr;
  const std::uint8_t* end = nullptr;

  // Whether no bit beyond the end was taken, and, if what the bytes hold was read as a `whole`, none but padding is
  // left.
  bool well_read(bool whole) const {
    const std::ptrdiff_t left = static_cast<std::ptrdiff_t>(count) - (next - end) * 8;
    return left >= 0 && (!whole || left < 8);
  }
};

inline std::uint64_t load_big_endian(const std::uint8_t* from) {
  std::uint64_t value;
  std::memcpy(&value, from, sizeof value);
  return __builtin_bswap64(value);
}

// Note [refill]
// Tops up to at least 56 bits without a branch: bits beyond `count` that are there already are read again, and the
// same.
inline void refill(BitStream& stream) {
  stream.bits |= load_big_endian(stream.next) >> stream.count;
  stream.next += (63 - stream.count) >> 3;
  stream.count |= 56;
}

inline void drop(BitStream& stream, unsigned bits) {
  stream.bits <<= bits & 63;
  stream.count -= bits;
}

}  // namespace fastpipe
