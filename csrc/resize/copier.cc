#include "resize/copier.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace fastpipe {
namespace {

constexpr double kMost = 1 << 30;  // of a place that is a number of pixels

bool whole(double place) { return std::abs(place) <= kMost && place == std::floor(place); }

// Pixels, each `kStep` bytes from the one before it, or in front of it, one behind the other. Whatever fits a word is
// copied as such: the next pixel overwrites what is too much, and what is read beyond the last one is there (RowSink).
template <int kBytes>
void copy_pixels(const std::uint8_t* from, std::ptrdiff_t step, int count, std::uint8_t* to) {
  constexpr int kCopied = kBytes == 3 ? 4 : kBytes;
  for (int x = 1; x < count; ++x, from += step, to += kBytes) std::memcpy(to, from, kCopied);
  std::memcpy(to, from, kBytes);
}

}  // namespace

bool Copier::plan(const Box& box, const Rect& bounds, bool flip, const Padding& padding, PixelSpan out, int pixel_bytes,
                  int decoded_bytes) {
  const Size size = out.size;
  if (box.width != size.width || box.height != size.height || !whole(box.x) || !whole(box.y)) return false;
  const int x = static_cast<int>(box.x), y = static_cast<int>(box.y);
  const int right = std::min(x + size.width, bounds.x + bounds.width);
  const int bottom = std::min(y + size.height, bounds.y + bounds.height);
  const int first_x = std::max(x, bounds.x), first_y = std::max(y, bounds.y);
  const bool inside = right - first_x == size.width && bottom - first_y == size.height;
  if (!inside && padding.mode != PaddingMode::constant) return false;
  region_ = {first_x, first_y, right - first_x, bottom - first_y};
  if (region_.width <= 0 || region_.height <= 0) region_ = {};
  padding_ = padding;
  out_ = out;
  pixel_bytes_ = pixel_bytes;
  decoded_bytes_ = decoded_bytes;
  flip_ = flip;
  left_ = flip ? x + size.width - right : first_x - x;
  top_ = first_y - y;
  return true;
}

void Copier::take(int y, int count, const std::uint8_t* rows, std::ptrdiff_t stride) const {
  const int width = region_.width;
  for (int i = 0; i < count; ++i) {
    const std::uint8_t* const row = rows + i * stride;
    std::uint8_t* const to = out_.row(top_ + y + i) + static_cast<std::ptrdiff_t>(left_) * pixel_bytes_;
    if (!flip_ && pixel_bytes_ == decoded_bytes_) {
      std::memcpy(to, row, static_cast<std::size_t>(width) * static_cast<std::size_t>(pixel_bytes_));
      continue;
    }
    const std::ptrdiff_t step = flip_ ? -decoded_bytes_ : decoded_bytes_;
    const std::uint8_t* const from = flip_ ? row + static_cast<std::ptrdiff_t>(width - 1) * decoded_bytes_ : row;
    with_pixel_bytes(pixel_bytes_, [&](auto bytes) { copy_pixels<bytes()>(from, step, width, to); });
  }
}

void Copier::finish() const {
  const int width = out_.size.width;
  for (int y = 0; y < out_.size.height; ++y) {
    const bool beside = y >= top_ && y < top_ + region_.height;
    const int before = beside ? left_ : width, end = beside ? left_ + region_.width : width;
    fill(out_.row(y), before);
    fill(out_.row(y) + static_cast<std::ptrdiff_t>(end) * pixel_bytes_, width - end);
  }
}

void Copier::fill(std::uint8_t* to, int count) const {
  const auto bytes = static_cast<std::size_t>(pixel_bytes_);
  for (int x = 0; x < count; ++x, to += bytes) std::memcpy(to, padding_.fill.data(), bytes);
}

}  // namespace fastpipe
