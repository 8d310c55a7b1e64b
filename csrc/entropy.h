// Entropy-coded bytes of a baseline scan -> DCT coefficients, for the MCUs that are wanted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "huffman.h"
#include "idct.h"
#include "scan_header.h"

namespace fastpipe {

// Bytes without stuffing, read from the top bit down. At least kReadBeyond bytes after the end are readable.
struct BitStream {
  static constexpr std::ptrdiff_t kReadBeyond = 2048;  // what an MCU of ten blocks can take, and a word

  std::uint64_t bits = 0;  // the next ones, on top
  unsigned count = 0;      // how many of them count; what lies below may be there already
  const std::uint8_t* next = nullptr;
  const std::uint8_t* end = nullptr;

  // Whether no bit beyond the end was taken, and, if what the bytes hold was read as a `whole`, none but padding is
  // left.
  bool well_read(bool whole) const {
    const std::ptrdiff_t left = static_cast<std::ptrdiff_t>(count) - (next - end) * 8;
    return left >= 0 && (!whole || left < 8);
  }
};

constexpr int kMostBlocks = 6;  // of an MCU

// Where coefficients of one component go: rows of pairs of neighbouring blocks, in the layout of idct.h.
struct CoefficientRows {
  std::int16_t* first = nullptr;
  int pairs = 0;  // a row

  std::int16_t* block(int row, int column) const {
    return first + (static_cast<std::ptrdiff_t>(row) * pairs + column / 2) * kPairStride + column % 2 * 8;
  }

  // Coefficients that a block does not have are written after the pair.
  static constexpr int kPairStride = kPairCoefficients + 16;
};

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
