#include "resize/padding.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

namespace fastpipe {
namespace {

// Whoever pads by more than this looks at no picture.
constexpr double kMostPixels = 1 << 30;

// Which of `count` pixels is at a place before, among or after them.
std::int64_t pixel_at(std::int64_t place, std::int64_t count, PaddingMode mode) {
  if (place >= 0 && place < count) return place;
  switch (mode) {
    case PaddingMode::edge:
      return std::clamp<std::int64_t>(place, 0, count - 1);
    case PaddingMode::reflect: {
      if (count == 1) return 0;
      const std::int64_t period = 2 * (count - 1), within = (place % period + period) % period;
      return std::min(within, period - within);
    }
    case PaddingMode::symmetric: {
      const std::int64_t period = 2 * count, within = (place % period + period) % period;
      return std::min(within, period - 1 - within);
    }
    case PaddingMode::none:
    case PaddingMode::constant:
      break;
  }
  return PaddedAxis::kFill;
}

}  // namespace

bool PaddedAxis::plan(double at, double length, int begin, int count, int out, PaddingMode mode) {
  resized_ = std::max(std::rint(count * (out / length)), 1.0);
  const double skipped = std::rint((at - begin) * (resized_ / count));
  if (!(resized_ <= kMostPixels && std::abs(skipped) <= kMostPixels)) return false;
  from_.resize(static_cast<std::size_t>(out));
  std::int64_t first = -1, last = -1;
  for (int i = 0; i < out; ++i) {
    const std::int64_t pixel =
        pixel_at(static_cast<std::int64_t>(skipped) + i, static_cast<std::int64_t>(resized_), mode);
    from_[static_cast<std::size_t>(i)] = static_cast<int>(pixel);
    if (pixel == kFill) continue;
    first = first < 0 ? pixel : std::min(first, pixel);
    last = std::max(last, pixel);
  }
  first_ = static_cast<int>(std::max<std::int64_t>(first, 0));
  needed_ = first < 0 ? 0 : static_cast<int>(last - first) + 1;
  at_ = begin + first_ * (count / resized_);
  length_ = needed_ * (count / resized_);
  for (int& pixel : from_) pixel = pixel == kFill ? kFill : pixel - first_;
  return true;
}

bool Padder::plan(const Box& box, const Rect& bounds, Size out, Padding padding, int pixel_bytes) {
  padding_ = padding;
  pixel_bytes_ = pixel_bytes;
  return columns_.plan(box.x, box.width, bounds.x, bounds.width, out.width, padding.mode) &&
         rows_.plan(box.y, box.height, bounds.y, bounds.height, out.height, padding.mode);
}

PixelSpan Padder::room() {
  const Size size = {columns_.needed(), rows_.needed()};
  const std::ptrdiff_t stride = static_cast<std::ptrdiff_t>(size.width) * pixel_bytes_;
  room_.resize(static_cast<std::size_t>(stride * size.height));
  return {room_.data(), size, stride};
}

void Padder::spread(PixelSpan out, bool flip) const {
  with_pixel_bytes(pixel_bytes_, [&](auto bytes) { spread_pixels<bytes()>(out, flip); });
}

template <int kBytes>
void Padder::spread_pixels(PixelSpan out, bool flip) const {
  const std::vector<int>& columns = columns_.from();
  const int width = out.size.width, needed = columns_.needed();
  const std::ptrdiff_t stride = static_cast<std::ptrdiff_t>(needed) * kBytes;
  const auto fill = [this](std::uint8_t* to, int count) {
    for (int x = 0; x < count; ++x) std::memcpy(to + kBytes * x, padding_.fill.data(), kBytes);
  };
  // Of a crop that is filled, the pixels lie side by side; those of others are repeated.
  const int before = static_cast<int>(std::find(columns.begin(), columns.end(), 0) - columns.begin());
  const bool run = padding_.mode == PaddingMode::constant && !empty();
  for (int y = 0; y < out.size.height; ++y) {
    const int row = rows_.from()[static_cast<std::size_t>(y)];
    const std::uint8_t* const from = room_.data() + std::max(row, 0) * stride;
    std::uint8_t* const to = out.row(y);
    if (row == PaddedAxis::kFill || empty()) {
      fill(to, width);
    } else if (run && !flip) {
      fill(to, before);
      std::memcpy(to + kBytes * before, from, static_cast<std::size_t>(stride));
      fill(to + kBytes * (before + needed), width - before - needed);
    } else {
      for (int x = 0; x < width; ++x) {
        const int column = columns[static_cast<std::size_t>(flip ? width - 1 - x : x)];
        std::memcpy(to + kBytes * x, column == PaddedAxis::kFill ? padding_.fill.data() : from + kBytes * column,
                    kBytes);
      }
    }
  }
}

}  // namespace fastpipe
