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

// Note [upsampling margin]
// Fancy upsampling makes each pixel from two neighbouring chroma samples in each direction, and treats the edge of
// what it is given as the edge of the picture. A crop with one chroma sample to spare on each side (two pixels) has the
// right neighbours; libjpeg widens it further, to whole blocks.
// Pictures of at most two chroma samples across get no fancy upsampling, so a part may not be that narrow.
constexpr int kUpsamplingMargin = 2;

// The tiles of a grid that a region needs, margin included. `region` is in pixels of the picture at 1/denominator of
// its size.
TileRange tiles_needed(Size image, Size tile, Size grid, int denominator, Rect region);

// Of the picture that these tiles make.
Size size_of(const TileRange& range, Size image, Size tile);

// Writes to `out` the JPEG of size `size` that the tiles of `range` make: the header's tables, the new size in its
// frame header, the tiles' bytes as they are, their restart markers numbered anew. Metadata is left out, but for what
// decides on colours. False where the header has anything but plain segments.
//   jpeg, header_bytes: the whole file's first bytes, up to and with the scan's header.
//   map: of the bytes that follow.
bool splice(const std::uint8_t* jpeg, std::size_t header_bytes, const RestartMap& map, const TileRange& range,
            Size size, std::vector<std::uint8_t>* out);

}  // namespace fastpipe
