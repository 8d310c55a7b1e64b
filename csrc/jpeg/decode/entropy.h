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
  EntropyDecoder();

  // False where a table that is used is missing, or is not one.
  bool build(const McuLayout& layout, const ScanTables& tables, int components);

  // Reads all of the runs, whose streams are then where they ended. The coefficients must be zero before. False where
  // the bytes are not what an encoder writes.
  bool read(McuRun* runs, std::size_t count, const std::array<CoefficientRows, kMostComponents>& to);

 private:
  using Entry = CoefficientTable::Entry;

  // Where a block's coefficients go, and the lookups for them.
  struct Place {
    std::int16_t* block;
    const Entry* dc;
    const Entry* ac;
    std::size_t component;
  };

  // Note [places]
  static constexpr std::size_t kMostPlaces = 60;

  // Where in a stream a lane is.
  struct Cursor {
    BitStream stream;
    unsigned at = 0;               // where in the zigzag the last coefficient lies
    const Entry* table = nullptr;  // for the next one
    const Place* place = nullptr;
  };

  enum class State { in_run, run_done, error };

  // One of the streams that are read side by side.
  struct Lane {
    Cursor cursor;
    McuRun* run = nullptr;
    int mcu = 0;  // of the run: the first beyond the places
    Place* end = nullptr;
    std::array<Place, kMostPlaces + 2> places = {};
    std::array<std::int16_t, kMostPlaces + CoefficientRows::kPairStride> passed;  // what is skipped
  };

  static void read_symbol(Cursor* cursor);
  static void move_on(Cursor* cursor);
  static void step_both(Lane* a, Lane* b);
  static void step_alone(Lane* lane);
  void begin(McuRun* run, Lane* lane) const;
  void plan_places(Lane* lane) const;
  bool wanted(std::size_t component) const { return (*to_)[component].first != nullptr; }
  bool end_places(Lane* lane) const;
  State settle(Lane* lane) const;
  bool read_beyond(Cursor* cursor) const;

  McuLayout layout_;
  std::size_t components_ = 0;
  const std::array<CoefficientRows, kMostComponents>* to_ = nullptr;
  std::array<CoefficientTable, ScanTables::kMost> dc_, ac_;
  std::array<const CoefficientTable*, kMostComponents> dc_of_ = {}, ac_of_ = {};
  std::array<CoefficientTable::Lookup, kMostComponents> skip_;  // of those that nobody wants
  bool skips_ = false;                                          // whether these are of the picture at hand
  CoefficientTable::Lookup stop_;                               // behind the last place
  std::array<Lane, 2> lanes_;
};

}  // namespace fastpipe
