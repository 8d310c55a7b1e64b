// Where coefficients of one component go, before they are transformed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "jpeg/decode/idct.h"

namespace fastpipe {

// Rows of pairs of neighbouring blocks, in the layout of idct.h.
struct CoefficientRows {
  std::int16_t* first = nullptr;  // null: nobody wants them
  int pairs = 0;                  // a row

  std::int16_t* block(int row, int column) const {
    return first + (static_cast<std::ptrdiff_t>(row) * pairs + column / 2) * kPairStride + column % 2 * 8;
  }

  // Coefficients that a block does not have may be written after the pair.
  static constexpr int kPairStride = kPairCoefficients + 16;
};

}  // namespace fastpipe
