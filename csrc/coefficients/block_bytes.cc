#include "coefficients/block_bytes.h"

#include <cstring>

#include "coefficients/block_row.h"
#include "jpeg/zigzag.h"

namespace fastpipe {
namespace {

unsigned small(int value) { return static_cast<unsigned>(value + kMostSmall - (value > 0)) & 15; }

}  // namespace

std::uint8_t* begin_block(std::uint64_t mask, bool exceptions, unsigned* kind, std::uint8_t* out) {
  unsigned bytes = mask == 0 ? 0 : 8 - static_cast<unsigned>(__builtin_clzll(mask)) / 8;
  if (exceptions) bytes = bytes < 7 ? kMostMaskBytes + bytes : 15;
  *kind = bytes;
  std::memcpy(out, &mask, sizeof mask);
  return out + kMaskBytes[*kind];
}

std::uint8_t* write_exceptions(std::uint64_t mask, const std::int16_t* value, std::uint8_t* out) {
  std::uint8_t exceptions = 0;
  for (; mask != 0; mask &= mask - 1, ++value) {
    const int low = static_cast<std::int8_t>(*value);
    if (*value == low) continue;
    *out++ = kZigzagToRows[static_cast<std::size_t>(__builtin_ctzll(mask)) + 1];
    *out++ = static_cast<std::uint8_t>((*value - low) / 256);
    ++exceptions;
  }
  *out++ = exceptions;
  return out;
}

std::uint8_t* write_block_scalar(std::uint64_t mask, const std::int16_t* values, unsigned* kind, std::uint8_t* out) {
  const auto count = static_cast<unsigned>(__builtin_popcountll(mask));
  unsigned wide = 0;
  bool exceptions = false;
  for (unsigned i = 0; i < count; ++i) {
    if (values[i] < -kMostSmall || values[i] > kMostSmall) wide = i + 1;
    exceptions |= values[i] != static_cast<std::int8_t>(values[i]);
  }
  wide += (count - wide) % 2;
  out = begin_block(mask, exceptions, kind, out);
  for (unsigned i = 0; i < wide; ++i) *out++ = static_cast<std::uint8_t>(values[i]);
  for (unsigned i = wide; i < count; i += 2) {
    *out++ = static_cast<std::uint8_t>(small(values[i]) | small(values[i + 1]) << 4);
  }
  return exceptions ? write_exceptions(mask, values, out) : out;
}

std::vector<BlockBytesWriter> all_block_bytes_writers() {
  std::vector<BlockBytesWriter> all;
  for (const BlockBytesWriter writer :
       {write_block_scalar, neon_block_bytes_writer(), avx2_block_bytes_writer(), avx512_block_bytes_writer()}) {
    if (writer != nullptr) all.push_back(writer);
  }
  return all;
}

BlockBytesWriter best_block_bytes_writer() {
  static const BlockBytesWriter best = all_block_bytes_writers().back();
  return best;
}

}  // namespace fastpipe
