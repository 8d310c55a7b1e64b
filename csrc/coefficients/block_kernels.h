// Blocks of a row -> their coefficients: once in plain C++, and once an instruction set; all give the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "coefficients/block_row.h"

namespace fastpipe {

struct BlockKernels {
  const char* name;

  // Blocks [first, first + count) of a row -> pairs of blocks in the layout of CoefficientRows, all 64 coefficients of
  // each; of the last pair, if `count` is odd, also the second block, as zeros.
  //   at: the first block's bytes. kFpcPadding bytes behind the row are readable.
  //   dc: of the first block and those behind it
  //   pairs: 32-byte aligned
  // False where a block is not as a writer makes it; the coefficients then mean nothing.
  bool (*read)(const BlockRow& row, const std::uint8_t* at, int first, int count, const std::int16_t* dc,
               std::int16_t* pairs);
};

extern const BlockKernels kScalarBlocks;

// Each is null where this machine or this build lacks it.
const BlockKernels* neon_blocks();
const BlockKernels* avx2_blocks();
const BlockKernels* avx512_blocks();

// All that this machine can run, the fastest last.
std::vector<const BlockKernels*> all_block_kernels();

const BlockKernels* best_block_kernels();

// A block, taken apart. Note [length of a block]
struct BlockParts {
  std::uint64_t mask;          // bit i - 1: coefficient i of the zigzag order is not 0
  const std::uint8_t* values;  // `wide` bytes, then halves of bytes
  unsigned count;              // of values
  unsigned wide;               // how many of them take a byte: at most 63, whatever the bytes say
  unsigned bad;                // not 0: no writer makes such a block
};

constexpr std::uint64_t lowest_bytes(int count) { return count == 8 ? ~0ull : (1ull << 8 * count) - 1; }

// By the kind of a block: the bits of its mask.
struct MaskBits {
  std::uint64_t of[16];
  constexpr MaskBits() : of() {
    for (int kind = 0; kind < 16; ++kind) of[kind] = lowest_bytes(kMaskBytes[kind]);
  }
};
constexpr MaskBits kMaskBits;

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "masks and values are read as they lie in the file");

// Note [length of a block]
// A block is m bytes of mask, a byte for each of the first k values, half a byte for each of the others, whose number
// n - k is even. So its length is m + (n + k) / 2, and k follows from the length. A block with larger values goes on:
// a place and an upper byte for each of these (exceptions), and a byte that says how many they are.
__attribute__((always_inline)) inline BlockParts take_apart(const std::uint8_t* at, unsigned length, unsigned kind) {
  BlockParts parts;
  parts.bad = 0;
  if (__builtin_expect(kind > kMostMaskBytes, 0)) {
    const unsigned behind = length == 0 ? 1 : 1 + 2u * at[length - 1];
    parts.bad = behind > length;
    length -= behind;
  }
  std::memcpy(&parts.mask, at, sizeof parts.mask);
  parts.mask &= kMaskBits.of[kind];
  parts.count = static_cast<unsigned>(__builtin_popcountll(parts.mask));
  parts.values = at + kMaskBytes[kind];
  parts.wide = 2 * (length - kMaskBytes[kind]) - parts.count;
  parts.bad |= static_cast<unsigned>(parts.wide > parts.count) | static_cast<unsigned>(parts.mask >> 63);
  parts.wide &= 63;
  return parts;
}

// Adds the upper bytes of a block's larger values, in the layout of CoefficientRows; for blocks that are good. Rare,
// so the same for all kernels. False where a place is not that of a value.
bool add_exceptions(const std::uint8_t* at, unsigned length, std::int16_t* block);

}  // namespace fastpipe
