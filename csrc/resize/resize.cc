#include "resize/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/at_least.h"

namespace fastpipe {
namespace {

constexpr int kRowsAtOnce = 4;  // between the passes, if down is first

void grow(std::vector<std::uint8_t>* buffer, std::ptrdiff_t size) { at_least(buffer, static_cast<std::size_t>(size)); }

// A box may be so small that what lies around it has no size that a number could hold.
long rounded(double size) { return std::lround(std::min(size, 1e9)); }

// Whether each pixel of the output is one of the picture: then its weight is 1 with every interpolation.
bool copies(const Box& box, Size out) {
  return box.width == out.width && box.height == out.height && box.x == std::floor(box.x) && box.y == std::floor(box.y);
}

}  // namespace

Rect Resizer::plan(Box box, Rect bounds, Size out, bool flip, Resampling resampling) {
  copies_ = copies(box, out) && !flip;
  nearest_ = resampling.interpolation == Interpolation::nearest || copies(box, out);
  if (nearest_) return plan_nearest(box, bounds, out, flip);
  columns_.plan(box.x, box.width, bounds.x, bounds.width, out.width, flip, resampling, *kernels_);
  rows_.plan(box.y, box.height, bounds.y, bounds.height, out.height, false, resampling, *kernels_);
  const Rect region = {columns_.first_needed(), rows_.first_needed(), columns_.count_needed(), rows_.count_needed()};

  // Pillow's rule, for all of what lies in the bounds as it would be resized; torch has none.
  const long less_high = bounds.height - rounded(out.height * (bounds.height / box.height));
  const long less_wide = bounds.width - rounded(out.width * (bounds.width / box.width));
  down_first_ = resampling.antialias && less_high > 0 && less_high > 2 * less_wide;
  region_bytes_ = static_cast<std::ptrdiff_t>(region.width) * 4;
  output_bytes_ = static_cast<std::ptrdiff_t>(ceil_div(out.width, kOutputGroup) * kOutputGroup) * 3;
  between_stride_ = (down_first_ ? region_bytes_ : output_bytes_) + kWrittenBeyond;
  const int rows = std::max(region.height, rows_.weights().taps);
  grow(&between_, between_stride_ * rows + kReadBeyond);
  if (down_first_) {
    grow(&lines_, between_stride_ * kRowsAtOnce + kReadBeyond);
    grow(&outputs_, (output_bytes_ + kWrittenBeyond) * kRowsAtOnce);
  }
  return region;
}

Rect Resizer::plan_nearest(Box box, Rect bounds, Size out, bool flip) {
  nearest_columns_.plan(box.x, box.width, bounds.x, bounds.width, out.width, flip, NearestRule::pillow);
  nearest_rows_.plan(box.y, box.height, bounds.y, bounds.height, out.height, false, NearestRule::pillow);
  const Rect region = {nearest_columns_.first_needed(), nearest_rows_.first_needed(), nearest_columns_.count_needed(),
                       nearest_rows_.count_needed()};
  between_stride_ = static_cast<std::ptrdiff_t>(out.width) * 3;
  grow(&between_, between_stride_ * region.height);
  return region;
}

void Resizer::take(int y, int count, const std::uint8_t* rgbx, std::ptrdiff_t stride) {
  if (nearest_) {
    for (int i = 0; i < count; ++i) pick_columns(y + i, rgbx + i * stride);
    return;
  }
  std::uint8_t* const rows = between_.data() + y * between_stride_;
  if (!down_first_) {
    kernels_->horizontal(rgbx, stride, count, rows, between_stride_, columns_.weights());
    return;
  }
  for (int i = 0; i < count; ++i) {
    std::memcpy(rows + i * between_stride_, rgbx + i * stride, static_cast<std::size_t>(region_bytes_));
  }
}

void Resizer::pick_columns(int y, const std::uint8_t* rgbx) {
  std::uint8_t* to = between_.data() + y * between_stride_;
  const int first = nearest_columns_.first_needed();
  if (copies_) return copy_rgb(rgbx, to, nearest_columns_.count_needed());
  for (const int x : nearest_columns_.from()) {
    std::memcpy(to, rgbx + static_cast<std::ptrdiff_t>(x - first) * 4, 3);
    to += 3;
  }
}

void Resizer::finish(PixelSpan out) {
  if (nearest_) {
    const std::vector<int>& from = nearest_rows_.from();
    for (int y = 0; y < out.size.height; ++y) {
      const std::ptrdiff_t row = from[static_cast<std::size_t>(y)] - nearest_rows_.first_needed();
      std::memcpy(out.row(y), between_.data() + row * between_stride_, static_cast<std::size_t>(between_stride_));
    }
  } else if (down_first_) {
    finish_down_first(out);
  } else {
    for (int y = 0; y < out.size.height; ++y) down(y, out.row(y), out.size.width * 3);
  }
}

void Resizer::finish_down_first(PixelSpan out) {
  const std::ptrdiff_t stride = output_bytes_ + kWrittenBeyond;
  for (int y = 0; y < out.size.height; y += kRowsAtOnce) {
    const int count = std::min(kRowsAtOnce, out.size.height - y);
    for (int i = 0; i < count; ++i) down(y + i, lines_.data() + i * between_stride_, static_cast<int>(region_bytes_));
    kernels_->horizontal(lines_.data(), between_stride_, count, outputs_.data(), stride, columns_.weights());
    for (int i = 0; i < count; ++i) {
      std::memcpy(out.row(y + i), outputs_.data() + i * stride, static_cast<std::size_t>(out.size.width) * 3);
    }
  }
}

void Resizer::down(int y, std::uint8_t* out, int bytes) {
  const Weights weights = rows_.weights();
  const std::uint8_t* rows = between_.data() + weights.first[y] * between_stride_;
  kernels_->vertical(rows, between_stride_, weights.of(y), weights.taps, out, bytes);
}

}  // namespace fastpipe
