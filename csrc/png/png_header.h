// A PNG's chunks -> what they say of its pixels, and those in one compressed piece.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/image.h"
#include "base/status.h"

namespace fastpipe {

constexpr std::uint8_t kPngSignature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};  // of every file

// By the numbers of the format. Source: "Portable Network Graphics (PNG) Specification", W3C, section 11.2.1.
enum class PngColor : std::uint8_t { gray = 0, rgb = 2, palette = 3, gray_alpha = 4, rgb_alpha = 6 };

struct PngHeader {
  Size size;
  int bits = 0;  // of a sample: 1, 2, 4, 8 or 16
  PngColor color = PngColor::gray;

  // Whether a pixel is one number: a gray value, or an index of the palette.
  bool has_ids() const { return color == PngColor::gray || color == PngColor::palette; }

  std::size_t row_bytes() const;       // without the byte that names the row's filter
  std::size_t pixel_bytes() const;     // at least 1: how far to the left filters look
  std::size_t inflated_bytes() const;  // of all rows, with those bytes
};

struct PngParts {
  PngHeader header;
  const std::uint8_t* palette = nullptr;  // RGB; of PngColor::palette alone
  std::size_t colors = 0;                 // in it
  const std::uint8_t* deflated = nullptr;
  std::size_t deflated_bytes = 0;
};

// Reads all chunks up to the end, and compares the checksums of those that decide on pixels. The bytes of several IDAT
// are moved together, so `data` changes; `parts` refers to it. Refuses what is interlaced, what has more than
// `max_pixels`, and what announces more bytes than its compressed ones can hold: nobody need make memory for a lie.
Status parse_png(std::uint8_t* data, std::size_t size, std::int64_t max_pixels, PngParts* parts);

}  // namespace fastpipe
