#include "jpeg/huffman_lookup.h"

#include <algorithm>

namespace fastpipe {

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
  constexpr int kMostValueBits = 15;
  if (!codes_.build(spec)) return false;
  lookup_.fill({0, 0});
  bool good = true;
  codes_.each([&](int code, int length, int symbol) {
    if (symbol > kMostValueBits) good = false;
    if (length > kLookupBits) return;
    const int free_bits = kLookupBits - length;
    const Entry entry = {static_cast<std::uint8_t>(length), static_cast<std::uint8_t>(symbol)};
    std::fill_n(lookup_.begin() + (code << free_bits), 1 << free_bits, entry);
  });
  return good;
}

bool AcTable::build(const HuffmanSpec& spec) {
  if (!codes_.build(spec)) return false;
  lookup_.fill(kBeyond << 8 | (kLookupBits + 1) << 16);
  codes_.each([&](int code, int length, int symbol) {
    if (length > kLookupBits) return;
    const int run = symbol >> 4, value_bits = symbol & 15;
    const int free_bits = kLookupBits - length;
    Entry* const first = lookup_.data() + (code << free_bits);
    if (value_bits == 0) {
      // A run of 15 zeros and no value is sixteen zeros; any other run and no value ends the block.
      const unsigned advance = run == 15 ? 16 : kEndOfBlock;
      std::fill_n(first, 1 << free_bits, advance << 8 | static_cast<Entry>(length));
    } else if (value_bits > free_bits) {
      std::fill_n(first, 1 << free_bits, kBeyond << 8 | static_cast<Entry>(length) << 16);
    } else {
      const int repeats = 1 << (free_bits - value_bits);
      Entry* entry = first;
      for (int value = 0; value < 1 << value_bits; ++value, entry += repeats) {
        const int coefficient = value_of(static_cast<std::uint64_t>(value) << (64 - value_bits), value_bits);
        const Entry packed = static_cast<Entry>(coefficient) << 16 | static_cast<Entry>(run + 1) << 8 |
                             static_cast<Entry>(length + value_bits);
        std::fill_n(entry, repeats, packed);
      }
    }
  });
  return true;
}

}  // namespace fastpipe
