// The entropy-coded bytes of a common baseline JPEG -> tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "jpeg/bit_stream.h"
#include "jpeg/huffman_lookup.h"
#include "jpeg/parsed_header.h"
#include "jpeg/restart_map.h"
#include "jpeg/transcode/output_header.h"
#include "jpeg/transcode/tokens.h"

namespace fastpipe {

// Note [tokens]
// A baseline JPEG becomes another one with the same coefficients by other codes for the same symbols: a symbol and the
// bits behind it say the same in both, and only the first coefficient of a block depends on what was before. So no
// coefficient is ever made: symbols are looked up, counted and kept, and written again once their new codes are known.
class ScanTokens {
 public:
  // On machines where can_read_bits(), reads the whole scan, to be written with restart markers every
  // frame.interval MCUs. `tokens` must be empty before. False, and `tokens` means nothing, for whatever is not as an
  // encoder writes it: libjpeg-turbo then decides what is wrong, if anything.
  bool read(const ParsedHeader& header, const OutputHeader& frame, const std::uint8_t* data, std::size_t size,
            TokenList* tokens);

 private:
  // What the next bits are, up to a number that the lookup sees:
  //   bits 0-7    how many the symbol and the bits behind it are together
  //   bits 8-15   by how many places its coefficient lies beyond the last one; or one of those below
  //   bits 16-25  the symbol's index (tokens.h)
  //   bits 26-29  how many bits are behind it
  using Entry = std::uint32_t;
  static constexpr int kLookupBits = 12;
  static constexpr unsigned kEndOfBlock = 64, kLongCode = 128, kNone = 192;

  struct AcLookup {
    HuffmanCodes codes;
    std::array<Entry, 1 << kLookupBits> entries;

    bool build(const HuffmanSpec& spec, unsigned pair);
  };

  struct Block {
    std::size_t component;
    int column, row;  // in the MCU
  };

  bool build(const ParsedHeader& header, const OutputHeader& frame);
  bool open(std::size_t interval, const std::uint8_t* readable_end, BitStream* stream);
  bool read_mcus(const OutputHeader& frame, int interval, const std::uint8_t* readable_end, TokenList* tokens);
  template <bool kWithValues>
  bool read_block(BitStream* stream, std::size_t component, TokenList* tokens);
  void make_dummy(std::size_t first, std::size_t component, TokenList* tokens) const;

  RestartMap map_;
  std::vector<std::uint8_t> bytes_;  // of an interval, without stuffing

  std::vector<Block> blocks_;  // of an MCU
  std::array<unsigned, kMostComponents> pairs_ = {};
  std::array<int, kMostComponents> dc_read_ = {}, dc_written_ = {};  // the last values
  std::array<DcTable, kMostComponents> dc_;
  std::array<AcLookup, kMostComponents> ac_;
  std::array<const DcTable*, kMostComponents> dc_of_ = {};
  std::array<const AcLookup*, kMostComponents> ac_of_ = {};
};

}  // namespace fastpipe
