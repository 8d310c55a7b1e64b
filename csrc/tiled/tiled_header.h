// The first bytes of a KEY.tif -> what they say (docs/explanation/format.md, "KEY.tif").
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/image.h"
#include "base/status.h"

namespace fastpipe {

// The header and all tags lie in these first bytes of a file, or in fewer where it is shorter.
constexpr std::size_t kTiledHeadBytes = 512;

// Whether these are the first bytes of a little-endian BigTIFF.
bool is_tiled(const std::uint8_t* data, std::size_t size);

struct TiledHeader {
  Size size;       // of the picture
  Size tile;       // multiples of 16; tiles at the right and lower edge are whole, too
  int across = 0;  // tiles in a row
  int down = 0;
  bool is_png = false;           // tiles are PNGs; else JPEGs
  std::uint64_t offsets_at = 0;  // where the u8 offsets of the tiles lie in the file, row by row
  std::uint64_t sizes_at = 0;    // where their u4 sizes in bytes lie; 0: all of the tile is black

  // Reads it from the first `known` bytes of a file of `file_size` bytes. What it then says of places has been checked
  // to lie inside the file.
  Status read(const std::uint8_t* data, std::size_t known, std::size_t file_size, std::int64_t max_pixels);
};

}  // namespace fastpipe
