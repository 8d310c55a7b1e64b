// A picture as strips of MCUs, and which MCUs of it are meant.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/image.h"
#include "jpeg/parsed_header.h"

namespace fastpipe {

// A gray picture, or YCbCr whose colours have one block an MCU.
struct StripPicture {
  Size size;
  int components = 0;                                       // that are decoded: 1 where only gray is wanted of three
  int across = 1, down = 1;                                 // blocks of brightness in an MCU: 1 or 2
  std::array<const std::uint16_t*, kMostComponents> quant;  // of each component: 64 steps, row by row

  int mcus_per_row() const { return ceil_div(size.width, kBlockSide * across); }
  int mcu_rows() const { return ceil_div(size.height, kBlockSide * down); }
};

// MCUs [left, right) of rows [top, bottom); none if right <= left.
struct StripWindow {
  int left = 0, right = 0, top = 0, bottom = 0;

  bool empty() const { return right <= left; }
  bool has_rows_of(int from, int to) const { return top < to && from < bottom; }

  // The smallest window that holds both, each of which may be empty.
  StripWindow with(const StripWindow& other) const {
    if (empty()) return other;
    if (other.empty()) return *this;
    return {std::min(left, other.left), std::max(right, other.right), std::min(top, other.top),
            std::max(bottom, other.bottom)};
  }
};

}  // namespace fastpipe
