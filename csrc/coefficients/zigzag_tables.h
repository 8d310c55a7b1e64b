// Where SIMD puts the values of a block: tables for shuffles.
#pragma once

#include <cstddef>
#include <cstdint>

#include "jpeg/zigzag.h"

namespace fastpipe {

// A place that a shuffle makes zero.
constexpr std::uint8_t kNowhere = 0x80;

// Position in the block, row by row -> position in the zigzag.
struct RowsToZigzag {
  alignas(64) std::uint8_t of[64];
  constexpr RowsToZigzag() : of() {
    for (std::size_t i = 0; i < 64; ++i) of[kZigzagToRows[i]] = static_cast<std::uint8_t>(i);
  }
};
constexpr RowsToZigzag kRowsToZigzag;

// Eight bits of a mask -> which of the next values goes to each of eight places.
struct Spread {
  alignas(8) std::uint8_t of[256][8];
  constexpr Spread() : of() {
    for (unsigned bits = 0; bits < 256; ++bits) {
      std::uint8_t next = 0;
      for (unsigned i = 0; i < 8; ++i) of[bits][i] = (bits >> i & 1) != 0 ? next++ : kNowhere;
    }
  }
};
constexpr Spread kSpread;

}  // namespace fastpipe
