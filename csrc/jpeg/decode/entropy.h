// Entropy-coded bytes of a baseline scan -> DCT coefficients, for the MCUs that are wanted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "jpeg/bit_stream.h"
#include "jpeg/decode/coefficient_rows.h"
#include "jpeg/huffman_lookup.h"
#include "jpeg/parsed_header.h"

namespace fastpipe {

constexpr int kMostBlocks = 6;  // of an MCU

// The blocks of an MCU, in the order of the scan.
struct McuLayout {
  struct Block {
    int component;
    int column;
    int row;
  };
  std::array<Block, kMostBlocks> blocks;
  int count = 0;
  std::array<int, kMostComponents> across = {1, 1, 1};  // blocks of each component, sideways
  std::array<int, kMostComponents> down = {1, 1, 1};
};

// Some MCUs of a stream, one after the other: `skip` that nobody wants, then `take` that go to `row` from `column` on.
struct McuRun {
  BitStream stream;
  std::array<int, kMostComponents> dc = {};  // the last values
  int skip = 0;
  int take = 0;
  int row = 0;
  int column = 0;
};

class EntropyDecoder {
 public:
  // False where a table that is used is missing, or is not one.
  bool build(const McuLayout& layout, const ScanTables& tables, int components);

  // Reads all of the runs, whose streams are then where they ended. The coefficients must be zero before. False where
  // the bytes are not what an encoder writes.
  bool read(McuRun* runs, std::size_t count, const std::array<CoefficientRows, kMostComponents>& to) const;

 private:
  struct Lane;
  static void step_both(Lane* a, Lane* b);
  static void step_alone(Lane* lane);

  McuLayout layout_;
  std::array<DcTable, ScanTables::kMost> dc_;
  std::array<AcTable, ScanTables::kMost> ac_;
  std::array<const DcTable*, kMostComponents> dc_of_ = {};
  std::array<const AcTable*, kMostComponents> ac_of_ = {};
};

}  // namespace fastpipe
