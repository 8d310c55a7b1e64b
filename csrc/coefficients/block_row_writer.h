// The values of blocks, one after the other -> the bytes of a row of blocks (block_row.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jpeg/transcode/tokens.h"

namespace fastpipe {

// One row at a time; keeps its memory.
class BlockRowWriter {
 public:
  void begin(int blocks);

  // Adds a block. TokenList::kValuesBeyond more are readable behind its values, which must stay valid.
  void add(const BlockRecord& block, const std::int16_t* values) { blocks_[next_++] = {block, values}; }

  // Once all blocks have been added.
  void append_to(std::vector<std::uint8_t>* out);

 private:
  struct Block {
    BlockRecord record;
    const std::int16_t* values;
  };

  std::size_t write_dc(std::uint8_t* low, std::uint8_t* wide, std::uint8_t* high) const;

  std::vector<Block> blocks_;
  std::size_t next_ = 0;
  std::vector<std::uint8_t> memory_;  // larger than what it holds
};

}  // namespace fastpipe
