// A crop of a mask or picture -> which of its pixels each pixel of the row is: the nearest neighbour.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/image.h"
#include "resize/padding.h"

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

  // The same by torch's rule for a box that may lie beyond the bounds; Note [padding].
  bool plan_padded(double at, double length, int begin, int count, int out, bool flip, PaddingMode mode);

  // Of each output pixel: the pixel of the picture, or kFill.
  static constexpr int kFill = PaddedAxis::kFill;
  const std::vector<int>& from() const { return from_; }
  int first_needed() const { return first_needed_; }
  int count_needed() const { return count_needed_; }  // 0: the output is all fill

 private:
  void find_needed();

  std::vector<int> from_;
  int first_needed_ = 0;
  int count_needed_ = 0;
  PaddedAxis padded_;
};

// One mask at a time; a thread keeps one and reuses its memory.
class NearestResizer {
 public:
  // As Resizer::plan, with the same crops. Returns the region needed.
  Rect plan(const Box& box, const Rect& bounds, Size out, bool flip);

  // The same where the box may lie beyond the bounds. False if it is impossible; the region is empty if the output is
  // all fill.
  bool plan_padded(const Box& box, const Rect& bounds, Size out, bool flip, Padding padding, Rect* region);

  // Writes the output. `source(y)` gives row y of the mask, as something that has a [column].
  //   out: rows of the size planned, without gaps
  template <typename Out, typename Source>
  void fill(Out* out, const Source& source) const {
    const std::vector<int>& columns = columns_.from();
    int taken = NearestAxis::kFill;
    for (const int y : rows_.from()) {
      if (y == NearestAxis::kFill) {
        out = std::fill_n(out, columns.size(), static_cast<Out>(mask_fill_));
        continue;
      }
      if (y == taken) {
        std::memcpy(out, out - columns.size(), columns.size() * sizeof(Out));
        out += columns.size();
        continue;
      }
      taken = y;
      const auto row = source(y);
      for (const int x : columns) *out++ = static_cast<Out>(x == NearestAxis::kFill ? mask_fill_ : row[x]);
    }
  }

 private:
  NearestAxis columns_;
  NearestAxis rows_;
  std::int32_t mask_fill_ = 0;
};

}  // namespace fastpipe
