// The bytes of a KEY.fpc -> the coefficients of some MCUs of a row.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "coefficients/block_kernels.h"
#include "coefficients/fpc_header.h"
#include "jpeg/decode/coefficient_rows.h"

namespace fastpipe {

// A thread keeps one and reuses its memory.
class McuRows {
 public:
  // Writes the blocks of MCUs [left, right) of a row, for each component its rows of blocks from the first of `to` on.
  // Blocks that fill up an MCU at the edge of the picture, and the second of a last odd pair, become zeros.
  //   data: the file's first byte; the header's bytes, those of the row and kFpcPadding more are there.
  // False where the row is not as a writer makes it.
  bool read(const FpcHeader& header, const std::uint8_t* data, int mcu_row, int left, int right,
            const BlockKernels& kernels, const std::array<CoefficientRows, kMostComponents>& to);

 private:
  bool read_blocks(const BlockRow& row, int first, int end, const BlockKernels& kernels, std::int16_t* to, int pairs);

  std::vector<std::int16_t> dc_;
};

}  // namespace fastpipe
