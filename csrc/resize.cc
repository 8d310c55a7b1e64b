#include "resize.h"

#include <algorithm>
#include <cmath>

namespace fastpipe {

// The filter of Pillow's Resample.c (precompute_coeffs): a triangle one input pixel wide to each side, or, where the
// picture shrinks, as many input pixels as one output pixel covers; cut off at the bounds and normalised.
void Resizer::Axis::plan(double start, double length, int bounds_first, int bounds_count, int outputs) {
  const double scale = length / outputs;
  const double support = std::max(scale, 1.0);
  const double offset = start - bounds_first;
  per_output = static_cast<int>(std::ceil(support)) * 2 + 1;
  per_output += per_output % 2;
  taps.resize(static_cast<std::size_t>(outputs));
  exact.assign(static_cast<std::size_t>(outputs) * per_output, 0.0);
  double largest = 0;
  for (int i = 0; i < outputs; ++i) {
    const double center = offset + (i + 0.5) * scale;
    int first = std::max(static_cast<int>(center - support + 0.5), 0);
    const int last = std::min(static_cast<int>(center + support + 0.5), bounds_count);
    first = std::min(first, last - 1);
    const int count = std::min(last - first, per_output);
    double* weights = exact.data() + static_cast<std::ptrdiff_t>(i) * per_output;
    double sum = 0;
    for (int j = 0; j < count; ++j) {
      weights[j] = std::max(1.0 - std::abs((first + j - center + 0.5) / support), 0.0);
      sum += weights[j];
    }
    if (sum == 0) {  // rounding left the only pixel just outside the triangle
      weights[0] = sum = 1;
    }
    for (int j = 0; j < count; ++j) {
      weights[j] /= sum;
      largest = std::max(largest, weights[j]);
    }
    taps[static_cast<std::size_t>(i)] = {bounds_first + first, count};
  }

  // Note [fixed point]: as many fraction bits as the largest weight leaves room for in 16 bits. What rounding takes
  // from one weight goes to the next, so that they add up.
  shift = 22;
  while (largest * (1 << shift) + 1 > 32767) --shift;
  const int one = 1 << shift;
  values.resize(exact.size());
  for (std::size_t at = 0; at < exact.size(); at += static_cast<std::size_t>(per_output)) {
    double carry = 0.5;
    for (std::size_t j = at; j < at + static_cast<std::size_t>(per_output); ++j) {
      carry += exact[j] * one;
      const double value = std::floor(carry);
      values[j] = static_cast<std::int16_t>(value);
      carry -= value;
    }
  }
}

void Resizer::Axis::reverse() {
  std::reverse(taps.begin(), taps.end());
  for (std::size_t i = 0, j = taps.size() - 1; i < j; ++i, --j) {
    std::swap_ranges(values.begin() + static_cast<std::ptrdiff_t>(i) * per_output,
                     values.begin() + static_cast<std::ptrdiff_t>(i + 1) * per_output,
                     values.begin() + static_cast<std::ptrdiff_t>(j) * per_output);
  }
}

int Resizer::Axis::rebase(int* count) {
  int first = taps.front().first;
  int end = 0;
  for (const Tap& tap : taps) {
    first = std::min(first, tap.first);
    end = std::max(end, tap.first + tap.count);
  }
  for (Tap& tap : taps) tap.first -= first;
  *count = end - first;
  return first;
}

Weights Resizer::Axis::weights() const {
  return {taps.data(), values.data(), per_output, static_cast<int>(taps.size()), shift};
}

Rect Resizer::plan(Box box, Rect bounds, Size out, bool flip) {
  columns_.plan(box.x, box.width, bounds.x, bounds.width, out.width);
  rows_.plan(box.y, box.height, bounds.y, bounds.height, out.height);
  if (flip) columns_.reverse();
  Rect region;
  region.x = columns_.rebase(&region.width);
  region.y = rows_.rebase(&region.height);
  shrunk_stride_ = static_cast<std::ptrdiff_t>(out.width) * 3 + 1;  // one byte more: ResizeKernels::horizontal
  shrunk_.resize(static_cast<std::size_t>(shrunk_stride_) * static_cast<std::size_t>(region.height + 1));
  return region;
}

void Resizer::take(int y, int count, const std::uint8_t* rgbx, std::ptrdiff_t stride) {
  const Weights weights = columns_.weights();
  for (int i = 0; i < count; ++i) {
    kernels_->horizontal(rgbx + i * stride, shrunk_.data() + (y + i) * shrunk_stride_, weights);
  }
}

void Resizer::finish(PixelSpan out) const {
  const Weights weights = rows_.weights();
  for (int y = 0; y < out.size.height; ++y) {
    const Tap tap = weights.taps[y];
    kernels_->vertical(shrunk_.data() + tap.first * shrunk_stride_, shrunk_stride_,
                       weights.values + static_cast<std::ptrdiff_t>(y) * weights.per_output, tap.count, weights.shift,
                       out.row(y), out.size.width * 3);
  }
}

}  // namespace fastpipe
