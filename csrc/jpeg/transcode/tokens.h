// A baseline scan as Huffman symbols and the bits behind them, before the codes are chosen.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/image.h"

namespace fastpipe {

// Bits 0-15: the bits behind the symbol, as they are written (T.81, F.1.2); bits 16-25: the symbol's index.
using Token = std::uint32_t;

// There are two pairs of tables, for brightness and colour. All their symbols stand in one line, so that what counts or
// writes tokens need not know of blocks.
constexpr std::size_t kTablePairs = 2;
constexpr unsigned kSymbolsPerTable = 256;
constexpr std::size_t kSymbolIndexes = 2 * kTablePairs * kSymbolsPerTable;
constexpr unsigned kDc = 0, kAc = 1;

constexpr unsigned symbol_index(unsigned pair, unsigned kind, unsigned symbol) {
  return (2 * pair + kind) * kSymbolsPerTable + symbol;
}

// The most bits behind a symbol that 8-bit pictures have (T.81, tables F.1 and F.2); libjpeg writes no more either.
constexpr int kMostDcBits = 11, kMostAcBits = 10;

constexpr unsigned kEndOfBlockSymbol = 0x00, kSixteenZeros = 0xF0;

// No symbol: there are no AC values of 15 bits. Code without a branch may count it for what it does not know yet.
constexpr unsigned kNoSymbol = symbol_index(kTablePairs - 1, kAc, 0xFF);

// How many bits a value takes, and which (T.81, F.1.2.1).
inline int bits_of(int value) {
  const auto magnitude = static_cast<unsigned>(value < 0 ? -value : value);
  return magnitude == 0 ? 0 : 32 - __builtin_clz(magnitude);
}

inline Token token_of(unsigned index, int value, int bits) {
  const unsigned behind = static_cast<unsigned>(value < 0 ? value - 1 : value) & ((1u << bits) - 1);
  return index << 16 | behind;
}

// A block as its values, for those who write no Huffman codes: only one that has pixels, and none of it is a token.
struct BlockRecord {
  std::uint64_t mask;  // bit i - 1: coefficient i of the zigzag order is not 0; as many of TokenList::values
  int dc;              // the mean itself, not its difference
};

// The tokens of a scan in the order in which they are written, and how often each index occurs.
struct TokenList {
  static constexpr std::size_t kMostPerBlock = 64;

  std::vector<Token> memory;  // may be larger than what it holds
  std::size_t count = 0;
  std::vector<std::size_t> ends;  // where each restart interval ends
  std::array<std::uint64_t, kSymbolIndexes> counts = {};

  // Only where it is set. Values are made on the way of tokens, where time is spent waiting; from tokens they would
  // take half as long again.
  bool with_values = false;
  std::vector<BlockRecord> blocks;
  std::vector<std::int16_t> values;  // may be larger than what it holds
  std::size_t value_count = 0;

  void clear() {
    give_back_if_giant(&memory);
    count = 0;
    ends.clear();
    counts.fill(0);
    give_back_if_giant(&values);
    give_back_if_giant(&blocks);
    blocks.clear();
    value_count = 0;
  }

  static constexpr std::size_t kValuesBeyond = 64;  // readable behind the last value

  // Where the next token goes; there is room for `more`, and for as many values.
  Token* room(std::size_t more) {
    if (memory.size() - count < more) memory.resize(2 * memory.size() + more);
    if (with_values && values.size() - value_count < more + kValuesBeyond) {
      values.resize(2 * values.size() + more + kValuesBeyond);
    }
    return memory.data() + count;
  }

  void add(Token token) {
    memory[count++] = token;
    ++counts[token >> 16];
  }
};

}  // namespace fastpipe
