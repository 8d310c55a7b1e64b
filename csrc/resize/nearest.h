// A crop of a mask or picture -> which of its pixels each pixel of the row is: the nearest neighbour.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/image.h"

namespace fastpipe {

// Note [nearest]
// Ids are never averaged: each pixel of the output is one of the mask. Which one is torch's rule for
// interpolate(mode="nearest"), which torchvision resizes masks with: floor(i * scale), where scale is the input's
// length divided by the output's, and all of this is float32. A box between two whole pixels tells of a resize that
// came before the crop (Resize, CenterCrop). So its length says how long the resized bounds are, and its edge which of
// their pixels is the first: both are whole, and are found again by rounding.
// A picture's pixels are those of Pillow's NEAREST: it takes the pixel below an output pixel's centre, and gets from
// one centre to the next by adding the scale, in float64 (ImagingScaleAffine in Pillow's Geometry.c).
enum class NearestRule : std::uint8_t { torch, pillow };

class NearestAxis {
 public:
  // `at`, `length`: of the box; `begin`, `count`: of the bounds, inside which it lies.
  void plan(double at, double length, int begin, int count, int out, bool flip, NearestRule rule);

  // Of each output pixel: the pixel of the mask.
  const std::vector<int>& from() const { return from_; }
  int first_needed() const;
  int count_needed() const;

 private:
  std::vector<int> from_;
};

// One mask at a time; a thread keeps one and reuses its memory.
class NearestResizer {
 public:
  // As Resizer::plan, with the same crops. Returns the region needed.
  Rect plan(const Box& box, const Rect& bounds, Size out, bool flip);

  // Writes the output. `source(y)` gives row y of the mask, as something that has a [column]; it is asked once for each
  // row that has a part in the output, top down.
  //   out: rows of the size planned, without gaps
  template <typename Out, typename Source>
  void fill(Out* out, const Source& source) const {
    const std::vector<int>& columns = columns_.from();
    int taken = -1;
    for (const int y : rows_.from()) {
      if (y == taken) {
        std::memcpy(out, out - columns.size(), columns.size() * sizeof(Out));
        out += columns.size();
        continue;
      }
      taken = y;
      const auto row = source(y);
      for (const int x : columns) *out++ = static_cast<Out>(row[x]);
    }
  }

 private:
  NearestAxis columns_;
  NearestAxis rows_;
};

}  // namespace fastpipe
