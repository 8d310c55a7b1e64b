// Tokens and the codes chosen for them -> the entropy-coded bytes of a restart interval.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "jpeg/transcode/optimal_huffman.h"
#include "jpeg/transcode/tokens.h"

namespace fastpipe {

class EntropyWriter {
 public:
  // The code of one of the tables (tokens.h).
  void set(unsigned pair, unsigned kind, const HuffmanCode& code);

  // How many bytes the tokens so counted can take at most, padding and markers of `intervals` intervals included, and
  // what write() writes beyond the end.
  std::size_t bound(const std::array<std::uint64_t, kSymbolIndexes>& counts, std::size_t intervals) const;

  // Writes the tokens, fills the last byte with ones and returns the end. Up to 8 bytes after it are written too.
  std::uint8_t* write(const Token* begin, const Token* end, std::uint8_t* out) const;

 private:
  // What a symbol becomes: its code, above the bits behind it, which are added.
  struct Code {
    std::uint32_t bits = 0;
    std::uint32_t length = 0;  // both together
  };
  std::array<Code, kSymbolIndexes> codes_ = {};
};

}  // namespace fastpipe
