// A crop that may reach beyond its picture -> the part of the picture to resize, and where its pixels go.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/image.h"

namespace fastpipe {

// By torchvision's names. None: no crop reaches beyond its picture.
enum class PaddingMode : std::uint8_t { none, constant, edge, reflect, symmetric };

struct Padding {
  PaddingMode mode = PaddingMode::none;
  std::array<std::uint8_t, 8> fill{};  // of constant: the bytes of a pixel of the output
  std::int32_t mask_fill = 0;          // the same of masks
};

// Note [padding]
// torchvision resizes the picture, pads it and then cuts. Padding repeats pixels of the resized picture, so those that
// a row shows, its own and repeated ones, lie side by side in it: they are resized, without all others, and then put
// where they go. Box and bounds tell of the resize and of the cut as in Note [nearest]; here the cut may begin before
// the picture, and end after it.
class PaddedAxis {
 public:
  // `at`, `length`: of the box; `begin`, `count`: of the bounds. False if the box has no size that a number could hold.
  bool plan(double at, double length, int begin, int count, int out, PaddingMode mode);

  // Of each output: its place among those needed, or kFill.
  static constexpr int kFill = -1;
  const std::vector<int>& from() const { return from_; }

  // The pixels of the resized picture that are needed: how many; where they are in the picture itself.
  int needed() const { return needed_; }
  double at() const { return at_; }
  double length() const { return length_; }

  // The same by pixel of the resized picture.
  int first() const { return first_; }
  double resized() const { return resized_; }

 private:
  std::vector<int> from_;
  int first_ = 0;
  int needed_ = 0;
  double at_ = 0;
  double length_ = 0;
  double resized_ = 0;
};

// One picture at a time; a thread keeps one and reuses its memory.
class Padder {
 public:
  // As Resizer::plan, but the box may lie beyond the bounds. False if it is impossible.
  // `pixel_bytes`: of the output's pixels.
  bool plan(const Box& box, const Rect& bounds, Size out, Padding padding, int pixel_bytes);

  // Whether the row is all fill.
  bool empty() const { return columns_.needed() == 0 || rows_.needed() == 0; }

  // What has to be resized, inside the bounds, and where to.
  Box box() const { return {columns_.at(), rows_.at(), columns_.length(), rows_.length()}; }
  PixelSpan room();

  // Puts the room's pixels where they go, mirrored left and right if `flip`, and fills the rest.
  void spread(PixelSpan out, bool flip) const;

  // Lets go of memory that only a giant picture needs.
  void give_back() { give_back_if_giant(&room_); }

 private:
  template <int kBytes>
  void spread_pixels(PixelSpan out, bool flip) const;

  Padding padding_;
  int pixel_bytes_ = 3;
  PaddedAxis columns_;
  PaddedAxis rows_;
  std::vector<std::uint8_t> room_;
};

}  // namespace fastpipe
