// A PNG's chunks -> what they say of its pixels, and where these are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/image.h"
#include "base/status.h"

namespace fastpipe {

constexpr std::uint8_t kPngSignature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};  // of every file

// How many bytes of a file tell that it is a PNG, and its size.
constexpr std::size_t kPngStartBytes = 33;

bool has_png_signature(const std::uint8_t* data, std::size_t size);

// By the numbers of the format. Source: "Portable Network Graphics (PNG) Specification", W3C, section 11.2.1.
enum class PngColor : std::uint8_t { gray = 0, rgb = 2, palette = 3, gray_alpha = 4, rgb_alpha = 6 };

// Samples of a pixel as it is stored, where an index of a palette is one; 0: there is no such type.
int png_channels(PngColor color);

struct PngHeader {
  Size size;
  int bits = 0;  // of a sample: 1, 2, 4, 8 or 16
  PngColor color = PngColor::gray;
  bool interlaced = false;

  // Whether a pixel is one number: a gray value, or an index of the palette.
  bool has_ids() const { return color == PngColor::gray || color == PngColor::palette; }

  std::size_t row_bytes() const { return row_bytes(size.width); }  // without the byte that names the row's filter
  std::size_t row_bytes(int width) const;                          // of a row of so many pixels
  std::size_t pixel_bytes() const;                                 // at least 1: how far to the left filters look
  std::size_t inflated_bytes() const;                              // of all rows, with their filters' bytes
};

// Note [Adam7]
// An interlaced PNG has seven small pictures, of the pixels at first_x, first_x + step_x, ... of rows first_y, first_y
// + step_y, ...; those without a pixel are left out. Source: PNG Specification, section 8.2.
struct PngPass {
  int first_x, first_y, step_x, step_y;

  Size size(Size whole) const {
    return {(whole.width - first_x + step_x - 1) / step_x, (whole.height - first_y + step_y - 1) / step_y};
  }
};
constexpr PngPass kPngPasses[7] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                                   {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};

// A chunk's payload.
struct PngBytes {
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;
};

struct PngParts {
  PngHeader header;
  PngBytes palette;             // RGB of each index; of PngColor::palette alone
  PngBytes transparency;        // alpha of the first indices, or the samples of the colour that is clear
  int strip_rows = 0;           // each IDAT chunk has so many rows, and can be inflated by itself; 0: not so
  std::vector<PngBytes> idats;  // the compressed pixels, in pieces
  std::size_t deflated_bytes = 0;

  std::size_t colors() const { return palette.size / 3; }
  bool clear() const { return transparency.data != nullptr; }
};

// Reads all chunks up to the end, and compares the checksums of those that decide on pixels. `parts` refers to `data`.
// Refuses what has more than `max_pixels`, and what announces more bytes than its compressed ones can hold: nobody need
// make memory for a lie.
Status parse_png(const std::uint8_t* data, std::size_t size, std::int64_t max_pixels, PngParts* parts);

// The header alone, from a file's first kPngStartBytes.
Status parse_png_start(const std::uint8_t* data, std::size_t size, std::int64_t max_pixels, PngHeader* header);

}  // namespace fastpipe
