// The order in which a block's coefficients are coded (ITU-T T.81, figure A.6).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace fastpipe {

// Position in the zigzag -> position in the block, row by row.
constexpr std::array<std::uint8_t, 64> make_zigzag_to_rows() {
  std::array<std::uint8_t, 64> places = {};
  int row = 0, column = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    places[i] = static_cast<std::uint8_t>(8 * row + column);
    const bool up = (row + column) % 2 == 0;
    if (up ? column == 7 : row == 7) {
      up ? ++row : ++column;
    } else if (up ? row == 0 : column == 0) {
      up ? ++column : ++row;
    } else {
      row += up ? -1 : 1;
      column += up ? 1 : -1;
    }
  }
  return places;
}
constexpr std::array<std::uint8_t, 64> kZigzagToRows = make_zigzag_to_rows();

}  // namespace fastpipe
