// For writing: how often each symbol occurs -> the Huffman code that takes the fewest bits.
#pragma once

#include <array>
#include <cstdint>

namespace fastpipe {

// A code as a file has it (ITU-T T.81, B.2.4.2).
struct HuffmanCode {
  static constexpr int kMostBits = 16;

  std::array<std::uint8_t, kMostBits + 1> counts = {};  // counts[n]: codes of n bits
  std::array<std::uint8_t, 256> symbols = {};           // in the order of the codes
  int size = 0;                                         // symbols that have a code
};

// The code of T.81, K.2: none of it is all ones, none longer than 16 bits. Where several are as short, the one that
// libjpeg-turbo chooses: of two symbols as rare, the larger one is merged first. At least one of the 256 occurs.
HuffmanCode optimal_code(const std::uint64_t* occurrences);

}  // namespace fastpipe
