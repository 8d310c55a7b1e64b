// Rows of a picture of 16 bits -> one resized picture: torch's interpolate of float32, rounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/image.h"
#include "resize/float_axis.h"
#include "resize/resampling.h"

namespace fastpipe {

// As Resizer, for samples of 16 bits, and not for nearest. Note [float arithmetic]
class FloatResizer {
 public:
  Rect plan(const Box& box, const Rect& bounds, Size out, bool flip, Resampling resampling, int channels);
  void take(int y, int count, const std::uint8_t* rows, std::ptrdiff_t stride);
  void finish(PixelSpan out);

  void give_back() { give_back_if_giant(&between_); }

 private:
  FloatAxis columns_;
  FloatAxis rows_;
  int channels_ = 1;
  int width_ = 0;               // of the output
  std::vector<float> line_;     // a row of the region
  std::vector<float> between_;  // (rows of the region, width_, channels_)
};

}  // namespace fastpipe
