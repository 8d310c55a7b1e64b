#include "coefficients/block_row.h"

namespace fastpipe {
namespace {

// The next 8 bytes, or as many as there are, and zeros above them.
std::uint64_t word(const std::uint8_t* at, std::size_t bytes = sizeof(std::uint64_t)) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, bytes < sizeof value ? bytes : sizeof value);
  return value;
}

// Of bits that are set; without the instruction, which not every machine has.
std::size_t ones(std::uint64_t bits) {
  constexpr std::uint64_t kPairs = 0x5555555555555555, kFours = 0x3333333333333333, kBytes = 0x0F0F0F0F0F0F0F0F;
  bits -= bits >> 1 & kPairs;
  bits = (bits & kFours) + (bits >> 2 & kFours);
  return static_cast<std::size_t>(((bits + (bits >> 4)) & kBytes) * 0x0101010101010101 >> 56);
}

// Of `count` bytes.
std::size_t sum(const std::uint8_t* bytes, std::size_t count) {
  constexpr std::uint64_t kEven = 0x00FF00FF00FF00FF;
  constexpr std::size_t kMostWords = 128;  // 2 * 255 * 128 fits 16 bits
  std::size_t total = 0, at = 0;
  while (count - at >= sizeof kEven) {
    std::uint64_t lanes = 0;
    for (std::size_t i = 0; i < kMostWords && count - at >= sizeof kEven; ++i, at += sizeof kEven) {
      const std::uint64_t eight = word(bytes + at);
      lanes += (eight & kEven) + (eight >> 8 & kEven);
    }
    for (int lane = 0; lane < 64; lane += 16) total += lanes >> lane & 0xFFFF;
  }
  for (; at < count; ++at) total += bytes[at];
  return total;
}

}  // namespace

bool BlockRow::find(const std::uint8_t* begin, const std::uint8_t* limit, int count) {
  blocks = count;
  const auto n = static_cast<std::size_t>(count), wide_bytes = (n + 7) / 8;
  const auto room = static_cast<std::size_t>(limit - begin);
  const std::size_t fixed = n + (n + 1) / 2 + n + wide_bytes;
  if (room < fixed) return false;
  lengths = begin;
  kinds = lengths + n;
  dc_low = kinds + (n + 1) / 2;
  dc_wide = dc_low + n;
  dc_high = dc_wide + wide_bytes;
  if (n % 8 != 0 && dc_wide[wide_bytes - 1] >> n % 8 != 0) return false;
  std::size_t high = 0;
  for (std::size_t i = 0; i < wide_bytes; i += 8) high += ones(word(dc_wide + i, wide_bytes - i));
  const std::size_t bytes = sum(lengths, n);
  if (room - fixed < high || room - fixed - high < bytes) return false;
  payload = dc_high + high;
  end = payload + bytes;
  return true;
}

std::size_t BlockRow::bytes_before(int block) const { return sum(lengths, static_cast<std::size_t>(block)); }

void BlockRow::read_dc(int count, std::int16_t* dc) const {
  for (int i = 0; i < count; ++i) dc[i] = static_cast<std::int8_t>(dc_low[i]);
  const std::uint8_t* high = dc_high;
  const int wide_bytes = (blocks + 7) / 8;
  for (int i = 0; i < count; i += 64) {
    std::uint64_t wide = word(dc_wide + i / 8, static_cast<std::size_t>(wide_bytes - i / 8));
    for (; wide != 0; wide &= wide - 1) {
      const int block = i + __builtin_ctzll(wide);
      if (block >= count) break;
      dc[block] = static_cast<std::int16_t>(dc[block] + static_cast<std::int8_t>(*high++) * 256);
    }
  }
  unsigned value = 0;
  for (int i = 0; i < count; ++i) {
    value += static_cast<unsigned>(dc[i]);
    dc[i] = static_cast<std::int16_t>(value);
  }
}

}  // namespace fastpipe
