// The header that is written before the scan of a JPEG, but for its Huffman tables.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/image.h"
#include "jpeg/parsed_header.h"

namespace fastpipe {

struct OutputHeader {
  OutputHeader() = default;
  explicit OutputHeader(const ParsedHeader& scan);

  struct Component {
    int id = 0;
    int across = 1, down = 1;  // sampling factors
    std::size_t quant = 0;     // its table
    unsigned pair = 0;         // of Huffman tables (tokens.h)
  };
  Size size;
  std::size_t components = 0;
  std::array<Component, kMostComponents> component;
  std::array<std::array<std::uint16_t, 64>, ScanTables::kMost> quant;  // steps, row by row
  int interval = 0;                                                    // MCUs between restart markers; 0: none
  bool rgb = false;  // what Adobe's segment says; others are gray or YCbCr and have JFIF's segment
  Jfif jfif;

  // Blocks of a component in an MCU. A scan of one component has MCUs of one block, whatever its sampling factors.
  int across(std::size_t c) const { return components == 1 ? 1 : component[c].across; }
  int down(std::size_t c) const { return components == 1 ? 1 : component[c].down; }

  Size mcu_size() const {
    Size size_in_blocks = {1, 1};
    for (std::size_t c = 0; c < components; ++c) {
      size_in_blocks.width = std::max(size_in_blocks.width, across(c));
      size_in_blocks.height = std::max(size_in_blocks.height, down(c));
    }
    return {kBlockSide * size_in_blocks.width, kBlockSide * size_in_blocks.height};
  }

  Size mcus() const { return {ceil_div(size.width, mcu_size().width), ceil_div(size.height, mcu_size().height)}; }

  // Of a component, those that have pixels: MCUs at the edge may have more.
  Size blocks(std::size_t c) const {
    const Size mcu = mcu_size();
    return {ceil_div(size.width * across(c), mcu.width), ceil_div(size.height * down(c), mcu.height)};
  }
};

}  // namespace fastpipe
