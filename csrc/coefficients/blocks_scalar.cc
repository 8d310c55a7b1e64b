#include <cstring>

#include "coefficients/block_kernels.h"
#include "jpeg/decode/coefficient_rows.h"
#include "jpeg/zigzag.h"

namespace fastpipe {
namespace {

void clear(std::int16_t* block) {
  for (int row = 0; row < 8; ++row) std::memset(block + 16 * row, 0, 8 * sizeof *block);
}

bool read(const BlockRow& row, const std::uint8_t* at, int first, int count, const std::int16_t* dc,
          std::int16_t* pairs) {
  bool good = true;
  const CoefficientRows out = {pairs, 0};
  for (int i = 0; i < count; ++i) {
    const unsigned kind = row.kind(static_cast<unsigned>(first + i));
    const unsigned length = row.lengths[first + i];
    std::int16_t* const block = out.block(0, i);
    clear(block);
    const BlockParts parts = take_apart(at, length, kind);
    std::uint64_t mask = parts.bad == 0 ? parts.mask : 0;
    for (unsigned v = 0; mask != 0; mask &= mask - 1, ++v) {
      const unsigned behind = v - parts.wide;
      const int value = v < parts.wide ? static_cast<std::int8_t>(parts.values[v])
                                       : kSmallValues[parts.values[parts.wide + behind / 2] >> behind % 2 * 4 & 15];
      const unsigned place = kZigzagToRows[static_cast<std::size_t>(__builtin_ctzll(mask)) + 1];
      block[place / 8 * 16 + place % 8] = static_cast<std::int16_t>(value);
    }
    block[0] = dc[i];
    good &= parts.bad == 0;
    if (kind > kMostMaskBytes && parts.bad == 0) good &= add_exceptions(at, length, block);
    at += length;
  }
  if (count % 2 != 0) clear(out.block(0, count));
  return good;
}

}  // namespace

const BlockKernels kScalarBlocks = {"scalar", read};

}  // namespace fastpipe
