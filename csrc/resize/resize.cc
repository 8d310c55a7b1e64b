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

// Source: Pillow's Convert.c (rgba2rgbA).
void divide_by_alpha(PixelSpan pixels) {
  for (int y = 0; y < pixels.size.height; ++y) {
    std::uint8_t* pixel = pixels.row(y);
    for (int x = 0; x < pixels.size.width; ++x, pixel += 4) {
      const int alpha = pixel[3];
      if (alpha == 0 || alpha == 255) continue;
      for (int c = 0; c < 3; ++c) pixel[c] = static_cast<std::uint8_t>(std::min(255 * pixel[c] / alpha, 255));
    }
  }
}

}  // namespace

Rect Resizer::plan(Box box, Rect bounds, Size out, bool flip, Resampling resampling, PixelForm form) {
  form_ = form;
  nearest_ = resampling.interpolation == Interpolation::nearest || copies(box, out);
  if (nearest_) return plan_nearest(box, bounds, out, flip);
  if (form_.bits == 16) return float_.plan(box, bounds, out, flip, resampling, form_.channels);
  columns_.plan(box.x, box.width, bounds.x, bounds.width, out.width, flip, resampling, *kernels_);
  rows_.plan(box.y, box.height, bounds.y, bounds.height, out.height, false, resampling, *kernels_);
  const Rect region = {columns_.first_needed(), rows_.first_needed(), columns_.count_needed(), rows_.count_needed()};

  // Pillow's rule, for all of what lies in the bounds as it would be resized; torch has none.
  const long less_high = bounds.height - rounded(out.height * (bounds.height / box.height));
  const long less_wide = bounds.width - rounded(out.width * (bounds.width / box.width));
  down_first_ = resampling.antialias && less_high > 0 && less_high > 2 * less_wide;
  region_bytes_ = static_cast<std::ptrdiff_t>(region.width) * form_.bytes_decoded();
  output_bytes_ = static_cast<std::ptrdiff_t>(ceil_div(out.width, kOutputGroup) * kOutputGroup) * form_.channels;
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
  between_stride_ = static_cast<std::ptrdiff_t>(out.width) * form_.bytes();
  grow(&between_, between_stride_ * region.height);
  return region;
}

void Resizer::take(int y, int count, const std::uint8_t* rows, std::ptrdiff_t stride) {
  if (form_.bits == 16 && !nearest_) return float_.take(y, count, rows, stride);
  std::uint8_t* const between = between_.data() + y * between_stride_;
  if (nearest_) {
    for (int i = 0; i < count; ++i) pick(rows + i * stride, between + i * between_stride_);
    return;
  }
  if (form_.channels == 4) {
    rows = premultiplied(rows, stride, count);
    stride = region_bytes_;
  }
  if (!down_first_) return across(rows, stride, count, between, between_stride_);
  for (int i = 0; i < count; ++i) {
    std::memcpy(between + i * between_stride_, rows + i * stride, static_cast<std::size_t>(region_bytes_));
  }
}

void Resizer::pick(const std::uint8_t* row, std::uint8_t* to) const {
  with_pixel_bytes(form_.bytes(), [&](auto constant) {
    constexpr int kTo = constant(), kFrom = kTo == 3 ? 4 : kTo;
    for (const int x : nearest_columns_.from()) {
      std::memcpy(to, row + static_cast<std::ptrdiff_t>(x - nearest_columns_.first_needed()) * kFrom, kTo);
      to += kTo;
    }
  });
}

void Resizer::across(const std::uint8_t* rows, std::ptrdiff_t stride, int count, std::uint8_t* out,
                     std::ptrdiff_t out_stride) {
  if (form_.channels == 1) return gray_across(rows, stride, count, out, out_stride);
  const auto horizontal = form_.channels == 3 ? kernels_->horizontal : kernels_->horizontal_rgba;
  horizontal(rows, stride, count, out, out_stride, columns_.weights());
}

// Note [channels]
void Resizer::gray_across(const std::uint8_t* rows, std::ptrdiff_t stride, int count, std::uint8_t* out,
                          std::ptrdiff_t out_stride) {
  const std::ptrdiff_t width = region_bytes_, outputs = output_bytes_;
  grow(&quads_, 4 * width + kReadBeyond);
  grow(&quads_out_, 4 * outputs + kWrittenBeyond);
  for (int y = 0; y < count; y += 4, rows += 4 * stride, out += 4 * out_stride) {
    const auto at = [&](int row) { return std::min(row, count - y - 1); };  // beyond the last row, the last row again
    const std::uint8_t *const a = rows, *const b = rows + at(1) * stride, *const c = rows + at(2) * stride,
                              *const d = rows + at(3) * stride;
    std::uint8_t* quad = quads_.data();
    for (std::ptrdiff_t x = 0; x < width; ++x, quad += 4) {
      quad[0] = a[x];
      quad[1] = b[x];
      quad[2] = c[x];
      quad[3] = d[x];
    }
    kernels_->horizontal_rgba(quads_.data(), 0, 1, quads_out_.data(), 0, columns_.weights());
    for (int i = 0; i <= at(3); ++i) {
      const std::uint8_t* const from = quads_out_.data() + i;
      for (std::ptrdiff_t x = 0; x < outputs; ++x) out[i * out_stride + x] = from[4 * x];
    }
  }
}

// Source: Pillow's Convert.c (rgbA2rgba); its MULDIV255 is (c * a + 128) / 255, rounded by shifts.
const std::uint8_t* Resizer::premultiplied(const std::uint8_t* rows, std::ptrdiff_t stride, int count) {
  grow(&quads_, region_bytes_ * count + kReadBeyond);
  std::uint8_t* to = quads_.data();
  for (int i = 0; i < count; ++i) {
    const std::uint8_t* from = rows + i * stride;
    for (std::ptrdiff_t x = 0; x < region_bytes_; x += 4, from += 4, to += 4) {
      const unsigned alpha = from[3];
      for (int c = 0; c < 3; ++c) {
        const unsigned product = from[c] * alpha + 128;
        to[c] = static_cast<std::uint8_t>(((product >> 8) + product) >> 8);
      }
      to[3] = from[3];
    }
  }
  return quads_.data();
}

void Resizer::finish(PixelSpan out) {
  if (form_.bits == 16 && !nearest_) return float_.finish(out);
  if (nearest_) {
    const std::vector<int>& from = nearest_rows_.from();
    for (int y = 0; y < out.size.height; ++y) {
      const std::ptrdiff_t row = from[static_cast<std::size_t>(y)] - nearest_rows_.first_needed();
      std::memcpy(out.row(y), between_.data() + row * between_stride_, static_cast<std::size_t>(between_stride_));
    }
    return;
  }
  if (down_first_) {
    finish_down_first(out);
  } else {
    for (int y = 0; y < out.size.height; ++y) down(y, out.row(y), out.size.width * form_.channels);
  }
  if (form_.channels == 4) divide_by_alpha(out);
}

void Resizer::finish_down_first(PixelSpan out) {
  const std::ptrdiff_t stride = output_bytes_ + kWrittenBeyond;
  const auto bytes = static_cast<std::size_t>(out.size.width) * static_cast<std::size_t>(form_.channels);
  for (int y = 0; y < out.size.height; y += kRowsAtOnce) {
    const int count = std::min(kRowsAtOnce, out.size.height - y);
    for (int i = 0; i < count; ++i) down(y + i, lines_.data() + i * between_stride_, static_cast<int>(region_bytes_));
    across(lines_.data(), between_stride_, count, outputs_.data(), stride);
    for (int i = 0; i < count; ++i) std::memcpy(out.row(y + i), outputs_.data() + i * stride, bytes);
  }
}

void Resizer::down(int y, std::uint8_t* out, int bytes) {
  const Weights weights = rows_.weights();
  const std::uint8_t* rows = between_.data() + weights.first[y] * between_stride_;
  kernels_->vertical(rows, between_stride_, weights.of(y), weights.taps, out, bytes);
}

}  // namespace fastpipe
