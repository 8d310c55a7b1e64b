#include "resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace fastpipe {

// The filter of Pillow's Resample.c (precompute_coeffs, normalize_coeffs_8bpc), operation by operation: a triangle one
// input pixel wide to each side, or, where the picture shrinks, as many input pixels as one output pixel covers; cut
// off at the bounds and normalised.
void Resizer::Axis::plan(double start, double length, int bounds_first, int bounds_count, int outputs) {
  const double scale = length / outputs;
  const double support = std::max(scale, 1.0);
  const double narrow = 1.0 / support;
  const double offset = start - bounds_first;
  per_output = static_cast<int>(std::ceil(support)) * 2 + 1;
  per_output += per_output % 2;
  taps.resize(static_cast<std::size_t>(outputs));
  values.assign(static_cast<std::size_t>(outputs) * per_output * 2, 0);
  exact.resize(static_cast<std::size_t>(per_output));
  for (int i = 0; i < outputs; ++i) {
    const double center = offset + (i + 0.5) * scale;
    const int last = std::min(static_cast<int>(center + support + 0.5), bounds_count);
    const int first = std::min(std::max(static_cast<int>(center - support + 0.5), 0), last - 1);
    const int count = std::min(last - first, per_output);
    double sum = 0;
    for (int j = 0; j < count; ++j) {
      const double weight = std::max(1.0 - std::abs((j + first - center + 0.5) * narrow), 0.0);
      exact[static_cast<std::size_t>(j)] = weight;
      sum += weight;
    }
    if (sum == 0) exact[0] = sum = 1;  // rounding left the only pixel just outside the triangle
    taps[static_cast<std::size_t>(i)] = {bounds_first + first, count};

    // Note [fixed point]
    SplitWeight* split = values.data() + static_cast<std::ptrdiff_t>(i) * per_output * 2;
    for (int j = 0; j < count; ++j) {
      const int weight = static_cast<int>(0.5 + exact[static_cast<std::size_t>(j)] / sum * (1 << kWeightBits));
      SplitWeight* pair = split + j / 2 * 4 + j % 2;
      pair[0] = static_cast<SplitWeight>(weight >> kLowerBits);
      pair[2] = static_cast<SplitWeight>(weight & ((1 << kLowerBits) - 1));
    }
  }
}

void Resizer::Axis::reverse() {
  std::reverse(taps.begin(), taps.end());
  const std::ptrdiff_t step = static_cast<std::ptrdiff_t>(per_output) * 2;
  const auto outputs = static_cast<std::ptrdiff_t>(taps.size());
  for (std::ptrdiff_t i = 0, j = outputs - 1; i < j; ++i, --j) {
    std::swap_ranges(values.begin() + i * step, values.begin() + (i + 1) * step, values.begin() + j * step);
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
  return {taps.data(), values.data(), per_output, static_cast<int>(taps.size())};
}

Rect Resizer::plan(Box box, Rect bounds, Size out, bool flip) {
  columns_.plan(box.x, box.width, bounds.x, bounds.width, out.width);
  rows_.plan(box.y, box.height, bounds.y, bounds.height, out.height);
  if (flip) columns_.reverse();
  Rect region;
  region.x = columns_.rebase(&region.width);
  region.y = rows_.rebase(&region.height);

  // Pillow's rule, for all of what lies in the bounds as it would be resized.
  const long less_high = bounds.height - std::lround(out.height * (bounds.height / box.height));
  const long less_wide = bounds.width - std::lround(out.width * (bounds.width / box.width));
  down_first_ = less_high > 0 && less_high > 2 * less_wide;
  region_bytes_ = static_cast<std::ptrdiff_t>(region.width) * 4;
  const std::ptrdiff_t output_bytes = static_cast<std::ptrdiff_t>(out.width) * 3;
  constexpr std::ptrdiff_t kReadBeyond = 16, kWrittenBeyond = 1;  // ResizeKernels::horizontal
  between_stride_ = down_first_ ? region_bytes_ : output_bytes + kWrittenBeyond;
  between_.resize(static_cast<std::size_t>(between_stride_) * static_cast<std::size_t>(region.height + 1));
  if (down_first_) {
    line_.resize(static_cast<std::size_t>(region_bytes_ + kReadBeyond));
    output_.resize(static_cast<std::size_t>(output_bytes + kWrittenBeyond));
  }
  return region;
}

void Resizer::take(int y, int count, const std::uint8_t* rgbx, std::ptrdiff_t stride) {
  const Weights weights = columns_.weights();
  for (int i = 0; i < count; ++i) {
    std::uint8_t* row = between_.data() + (y + i) * between_stride_;
    if (down_first_) {
      std::memcpy(row, rgbx + i * stride, static_cast<std::size_t>(region_bytes_));
    } else {
      kernels_->horizontal(rgbx + i * stride, row, weights);
    }
  }
}

void Resizer::finish(PixelSpan out) {
  const Weights across = columns_.weights();
  const Weights down = rows_.weights();
  const int output_bytes = out.size.width * 3;
  for (int y = 0; y < out.size.height; ++y) {
    const Tap tap = down.taps[y];
    const std::uint8_t* rows = between_.data() + tap.first * between_stride_;
    if (down_first_) {
      kernels_->vertical(rows, between_stride_, down.of(y), tap.count, line_.data(), static_cast<int>(region_bytes_));
      kernels_->horizontal(line_.data(), output_.data(), across);
      std::memcpy(out.row(y), output_.data(), static_cast<std::size_t>(output_bytes));
    } else {
      kernels_->vertical(rows, between_stride_, down.of(y), tap.count, out.row(y), output_bytes);
    }
  }
  if (between_.capacity() > kKeptBytes) std::vector<std::uint8_t>().swap(between_);
}

}  // namespace fastpipe
