// The bytes of a row of blocks of one component -> where its parts are, and its DC values (docs/explanation/format.md,
// "Blocks").
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "jpeg/parsed_header.h"

namespace fastpipe {

// Note [lengths first]
// The bytes of a block say how long it is, so a decoder that reads them one after the other waits for each: a load, a
// mask, a count, some twenty cycles. Here a row begins with the lengths of all of its blocks. The next block's place
// is then one addition away, several blocks are in flight at once, blocks beside a crop are skipped by adding up, and
// whether all of them lie inside the row is known before the first is read. The length also says how many of a block's
// values take a byte, so it costs no more than that number did.
struct BlockRow {
  int blocks = 0;
  const std::uint8_t* lengths = nullptr;  // of each block, in bytes
  const std::uint8_t* kinds = nullptr;    // of each, in 4 bits
  const std::uint8_t* dc_low = nullptr;   // of each: the lower byte of its DC's difference
  const std::uint8_t* dc_wide = nullptr;  // a bit each: whether there is an upper byte
  const std::uint8_t* dc_high = nullptr;  // upper bytes
  const std::uint8_t* payload = nullptr;  // the blocks
  const std::uint8_t* end = nullptr;

  // False where a row of so many blocks does not end before `limit`.
  bool find(const std::uint8_t* begin, const std::uint8_t* limit, int count);

  unsigned kind(unsigned block) const { return kinds[block / 2] >> (block % 2 * 4) & 15u; }

  // How many bytes the blocks before this one take.
  std::size_t bytes_before(int block) const;

  // DC values of the first `count` blocks.
  void read_dc(int count, std::int16_t* dc) const;
};

// The kind of a block: how many bytes of mask it has. Above 8, it also has values of more than 8 bits.
constexpr int kMostMaskBytes = 8;
constexpr std::uint8_t kMaskBytes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 8};

// Values in 4 bits: there is no 0 among them.
constexpr std::int8_t kSmallValues[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6, 7, 8};
constexpr int kMostSmall = 8;

}  // namespace fastpipe
