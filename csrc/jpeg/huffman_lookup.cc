#include "jpeg/huffman_lookup.h"

#include <algorithm>

namespace fastpipe {
namespace {

constexpr int kMostDcBits = 15;

}  // namespace

bool HuffmanCodes::build(const HuffmanSpec& spec) {
  std::copy(spec.counts, spec.counts + kMostBits + 1, counts_.begin());
  std::uint32_t code = 0;
  int total = 0;
  limits_[0] = 0;
  for (int length = 1; length <= kMostBits; ++length) {
    const int count = counts_[static_cast<std::size_t>(length)];
    offsets_[static_cast<std::size_t>(length)] = total - static_cast<std::int32_t>(code);
    code += static_cast<std::uint32_t>(count);
    total += count;
    if ((count > 0 && code >= (1u << length)) || total > 256) return false;  // no code is all ones
    limits_[static_cast<std::size_t>(length)] = code << (kMostBits - length);
    code <<= 1;
  }
  std::copy(spec.symbols, spec.symbols + total, symbols_.begin());
  return true;
}

bool DcTable::build(const HuffmanSpec& spec) {
  if (!codes_.build(spec)) return false;
  lookup_.fill({0, 0});
  bool good = true;
  codes_.each([&](int code, int length, int symbol) {
    if (symbol > kMostDcBits) good = false;
    if (length > kLookupBits) return;
    const int free_bits = kLookupBits - length;
    const Entry entry = {static_cast<std::uint8_t>(length), static_cast<std::uint8_t>(symbol)};
    std::fill_n(lookup_.begin() + (code << free_bits), 1 << free_bits, entry);
  });
  return good;
}

bool CoefficientTable::build_dc(const HuffmanSpec& spec) {
  if (!codes_.build(spec)) return false;
  lookup_.fill(kBeyond << 8 | (kLookupBits + 1) << 16);
  bool good = true;
  codes_.each([&](int code, int length, int symbol) {
    if (symbol > kMostDcBits) {
      good = false;
    } else if (length <= kLookupBits) {
      add(code, length, symbol, 0);
    }
  });
  return good;
}

bool CoefficientTable::build_ac(const HuffmanSpec& spec) {
  if (!codes_.build(spec)) return false;
  lookup_.fill(kBeyond << 8 | (kLookupBits + 1) << 16);
  codes_.each([&](int code, int length, int symbol) {
    if (length > kLookupBits) return;
    const int run = symbol >> 4, value_bits = symbol & 15;
    // A run of 15 zeros and no value is sixteen zeros; any other run and no value ends the block.
    const bool ends = value_bits == 0 && run != 15;
    add(code, length, value_bits, ends ? kEndOfBlock : static_cast<unsigned>(run) + 1);
  });
  return true;
}

void CoefficientTable::skip(const CoefficientTable& dc, const CoefficientTable& ac, Lookup* lookup) {
  constexpr unsigned kLast = 63;
  for (unsigned seen = 0; seen < lookup->size(); ++seen) {
    Entry entry = dc.lookup_[seen];
    unsigned bits = entry & 0xFF, advance = entry >> 8 & 0xFF;
    while (advance < kLast && bits < kLookupBits) {
      const Entry next = ac.lookup_[seen << bits & (lookup->size() - 1)];
      if (bits + (next >> 16 & 0xFF) > kLookupBits) break;  // its code is not seen in whole
      const unsigned beyond = advance + (next >> 8 & 0xFF);
      if (beyond > kLast && beyond < kEndOfBlock) break;
      advance = beyond;
      bits += next & 0xFF;
      entry = Entry{63} << 24 | advance << 8 | bits;
    }
    (*lookup)[seen] = entry;
  }
}

void CoefficientTable::add(int code, int length, int value_bits, unsigned advance) {
  const int free_bits = kLookupBits - length;
  const auto entry = static_cast<Entry>(63 - value_bits) << 24 | static_cast<Entry>(length) << 16 | advance << 8 |
                     static_cast<Entry>(length + value_bits);
  std::fill_n(lookup_.data() + (code << free_bits), 1 << free_bits, entry);
}

}  // namespace fastpipe
