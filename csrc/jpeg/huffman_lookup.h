// For reading: a JPEG's Huffman tables -> lookup tables that give a symbol and the value behind it at once.
#pragma once

#include <array>
#include <cstdint>

#include "jpeg/bit_stream.h"

namespace fastpipe {

// A table as the file has it (ITU-T T.81, B.2.4.2).
struct HuffmanSpec {
  const std::uint8_t* counts;   // [17]; counts[n]: codes of n bits, n from 1
  const std::uint8_t* symbols;  // in the order of the codes
};

// The codes in order, for those that no lookup holds.
class HuffmanCodes {
 public:
  static constexpr int kMostBits = 16;

  // False where the counts do not make a prefix code.
  bool build(const HuffmanSpec& spec);

  // The symbol at the start of `bits` (the first bit on top) and its length, which is at least `at_least`; length 0
  // where there is none.
  struct Found {
    int symbol;
    int length;
  };
  Found find(std::uint64_t bits, int at_least) const {
    const auto top = static_cast<std::uint32_t>(bits >> (64 - kMostBits));
    for (int length = at_least; length <= kMostBits; ++length) {
      if (top < limits_[length]) return {symbols_[offsets_[length] + (top >> (kMostBits - length))], length};
    }
    return {0, 0};
  }

  // Calls visit(code, length, symbol) for each code in order.
  template <typename Visit>
  void each(Visit visit) const {
    for (int length = 1, code = 0, at = 0; length <= kMostBits; ++length, code <<= 1) {
      for (int i = 0; i < counts_[length]; ++i) visit(code++, length, symbols_[at++]);
    }
  }

 private:
  std::array<std::uint8_t, kMostBits + 1> counts_;
  std::array<std::uint32_t, kMostBits + 1> limits_;  // the first 16 bits that are not of a code this short
  std::array<std::int32_t, kMostBits + 1> offsets_;  // a code of this length, plus this: its place in symbols_
  std::array<std::uint8_t, 256> symbols_;
};

// A value of `count` bits, the leading bits of `bits`, as JPEG codes it (T.81, F.2.2.1): those that begin with 0 are
// negative. 0 for no bits.
inline int value_of(std::uint64_t bits, int count) {
  const auto magnitude = static_cast<int>(bits >> 1 >> (63 - count));
  const int negative = static_cast<int>(~static_cast<std::int64_t>(bits) >> 63) & (1 - (1 << count));
  return magnitude + negative;
}

// DC differences, one at a time, for those who need no speed: symbols are numbers of bits.
class DcTable {
 public:
  static constexpr int kLookupBits = 9;

  bool build(const HuffmanSpec& spec);

  struct Entry {
    std::uint8_t code_bits;  // 0: not in the lookup
    std::uint8_t value_bits;
  };

  // Adds the difference that comes next to `*value`, the DC coefficient before. False where there is none, or the
  // result is none that a block can hold. Takes at most 31 bits, of 56.
  bool read(BitStream& stream, int* value) const {
    refill(stream);
    Entry entry = lookup_[stream.bits >> (64 - kLookupBits)];
    if (entry.code_bits == 0) {
      const auto found = codes_.find(stream.bits, kLookupBits + 1);
      if (found.length == 0) return false;
      entry = {static_cast<std::uint8_t>(found.length), static_cast<std::uint8_t>(found.symbol)};
    }
    *value += value_of(stream.bits << entry.code_bits, entry.value_bits);
    drop(stream, static_cast<unsigned>(entry.code_bits) + entry.value_bits);
    return *value == static_cast<std::int16_t>(*value);
  }

 private:
  HuffmanCodes codes_;
  std::array<Entry, 1 << kLookupBits> lookup_;
};

// Coefficients of one kind. DC: symbols are numbers of bits, values are differences. AC: symbols are a run of zeros and
// a number of bits.
class CoefficientTable {
 public:
  static constexpr int kLookupBits = 10;

  // An entry's advance along the zigzag, where it is none: the block ends; a longer code than the lookup sees.
  static constexpr unsigned kEndOfBlock = 128, kBeyond = 192;

  // The code of one coefficient, and where its value is:
  //   bits 0-7    how many bits both have together; 0 where no code is as short as the lookup
  //   bits 8-15   by how many places the coefficient lies beyond the last one, 1 to 16; 0 for DC; or one of the above
  //   bits 16-23  how many bits the code has; for kBeyond the least that it can have
  //   bits 24-31  63 less how many bits the value has
  using Entry = std::uint32_t;
  using Lookup = std::array<Entry, 1 << kLookupBits>;

  bool build_dc(const HuffmanSpec& spec);
  bool build_ac(const HuffmanSpec& spec);

  // For blocks that nobody wants: a lookup for the beginning of a block whose entries have as many whole coefficients
  // as the lookup sees, and mostly all of them: their bits, and their advance. There are no values.
  static void skip(const CoefficientTable& dc, const CoefficientTable& ac, Lookup* lookup);

  const Entry* entries() const { return lookup_.data(); }
  Entry entry(std::uint64_t bits) const { return lookup_[bits >> (64 - kLookupBits)]; }
  const HuffmanCodes& codes() const { return codes_; }

 private:
  void add(int code, int length, int value_bits, unsigned advance);

  HuffmanCodes codes_;
  Lookup lookup_;
};

}  // namespace fastpipe
