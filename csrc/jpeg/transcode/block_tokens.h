// DCT coefficients, block by block -> tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "jpeg/parsed_header.h"
#include "jpeg/transcode/tokens.h"

namespace fastpipe {

// Adds the tokens of one MCU after another to a list.
class BlockTokens {
 public:
  // `interval`: MCUs between restart markers; 0: none.
  BlockTokens(int interval, TokenList* tokens) : tokens_(tokens), interval_(interval) {}

  void begin_mcu(std::size_t blocks);

  // A block's coefficients, row by row, of a component whose tables are the given pair. False where one is too large.
  bool add(const std::int16_t* block, std::size_t component, unsigned pair);

  // A block that fills up an MCU at the edge of the picture: all of it as bright as the block before.
  void add_dummy(unsigned pair);

  void end() { tokens_->ends.push_back(tokens_->count); }

 private:
  TokenList* tokens_;
  int interval_;
  int mcu_ = 0;  // of the interval
  std::array<int, kMostComponents> dc_ = {};
};

}  // namespace fastpipe
