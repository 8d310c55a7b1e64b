// A picture's geometry -> the restart interval that `pack` gives it.
#pragma once

#include <cstddef>

#include "jpeg/transcode/output_header.h"

namespace fastpipe {

// MCUs between restart markers for tiles of about `target_width` pixels (0: no tiles) of a JPEG that came with
// `scan_bytes` behind its header: a divisor of the MCUs in a row, so that tiles form a grid. 0: no markers.
//
// Note [tile width]
// A tile is what can be decoded alone. Decoding a crop reads half a tile too much on each side, so narrow tiles skip
// more; each tile costs bytes: a two-byte marker, half a byte of padding and the DC values, which start again from
// zero. The divisor nearest to the target, as a ratio, is taken, but none under two thirds of it, nor one whose tiles
// would add more than a 64th of those bytes. Where no other divisor is left (a prime number of MCUs), a tile is a row.
int restart_interval(const OutputHeader& header, int target_width, std::size_t scan_bytes);

}  // namespace fastpipe
