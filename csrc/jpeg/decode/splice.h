// A tiled JPEG and a range of its tiles -> a JPEG of just those tiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/image.h"
#include "jpeg/restart_map.h"

namespace fastpipe {

// Tiles [column, column + columns) of rows [row, row + rows) of a grid that is `per_row` tiles wide.
struct TileRange {
  int per_row;
  int column;
  int columns;
  int row;
  int rows;
};

// Writes to `out` the JPEG of size `size` that the tiles of `range` make: the header's tables, the new size in its
// frame header, the tiles' bytes as they are, their restart markers numbered anew. Metadata is left out, but for what
// decides on colours. False where the header has anything but plain segments.
//   jpeg, header_bytes: the whole file's first bytes, up to and with the scan's header.
//   map: of the bytes that follow.
bool splice(const std::uint8_t* jpeg, std::size_t header_bytes, const RestartMap& map, const TileRange& range,
            Size size, std::vector<std::uint8_t>* out);

}  // namespace fastpipe
