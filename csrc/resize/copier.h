// A crop whose pixels keep their size -> the row: its part of the picture is copied, once, and what lies around filled.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/image.h"
#include "resize/padding.h"

namespace fastpipe {

// One crop at a time; keeps nothing.
class Copier {
 public:
  // Box, bounds and flip as Padder and Resizer have them. False, and nothing planned, where pixels change their size,
  // or are repeated: those two do it then. `decoded_bytes`: of a pixel of the rows; a fourth byte is left out of three.
  bool plan(const Box& box, const Rect& bounds, bool flip, const Padding& padding, PixelSpan out, int pixel_bytes,
            int decoded_bytes);

  // The region of the picture that is needed; without pixels where all is fill.
  const Rect& region() const { return region_; }

  // Rows of the region, as a RowSink is given them.
  void take(int y, int count, const std::uint8_t* rows, std::ptrdiff_t stride) const;

  // Fills what lies around the region.
  void finish() const;

 private:
  void fill(std::uint8_t* to, int count) const;

  Padding padding_;
  PixelSpan out_;
  int pixel_bytes_ = 3;
  int decoded_bytes_ = 4;
  bool flip_ = false;
  Rect region_;
  int left_ = 0;  // where the region begins in the output
  int top_ = 0;
};

}  // namespace fastpipe
