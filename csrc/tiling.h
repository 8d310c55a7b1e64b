// A picture's geometry -> the restart interval that `pack` gives it.
#pragma once

#include <cstddef>

namespace fastpipe {

struct TilingInput {
  int mcus_per_row;
  int mcu_rows;
  int mcu_width;             // pixels
  int target_width;          // pixels of a tile; 0: no tiles
  std::size_t source_bytes;  // of the JPEG as it came
};

// MCUs between restart markers: a divisor of mcus_per_row, so that tiles form a grid. 0: no markers.
//
// Note [tile width]
// A tile is what can be decoded alone. Decoding a crop reads half a tile too much on each side, so narrow tiles skip
// more; each tile costs bytes: a two-byte marker, half a byte of padding and the DC values, which start again from
// zero. The divisor nearest to the target, as a ratio, is taken, but none under two thirds of it, nor one whose tiles
// would add more than a 64th to the file. Where no other divisor is left (a prime number of MCUs), a tile is a row.
int restart_interval(const TilingInput& input);

}  // namespace fastpipe
