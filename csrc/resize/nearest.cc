#include "resize/nearest.h"

#include <algorithm>
#include <cmath>

namespace fastpipe {
namespace {

// Whoever resizes a picture to more pixels than this looks at no sum of roundings.
constexpr double kMostAdded = 1 << 20;

}  // namespace

void NearestAxis::plan(double at, double length, int begin, int count, int out, bool flip, NearestRule rule) {
  // A box may be so small that what lies around it has no size that a number could hold.
  const double resized = std::clamp(std::rint(count * (out / length)), 1.0, 1e15);
  const double skipped = std::rint((at - begin) * (resized / count));
  from_.resize(static_cast<std::size_t>(out));
  const auto set = [&](int i, double place) {
    const int input = static_cast<int>(std::clamp(place, 0.0, count - 1.0));
    from_[static_cast<std::size_t>(flip ? out - 1 - i : i)] = begin + input;
  };
  if (rule == NearestRule::torch) {
    const float scale = static_cast<float>(count) / static_cast<float>(resized);
    for (int i = 0; i < out; ++i) set(i, static_cast<double>(static_cast<float>(skipped + i) * scale));
    return find_needed();
  }
  const double scale = count / resized;
  double place = scale * 0.5;
  if (skipped > kMostAdded) place += skipped * scale;
  for (double i = 0; i < skipped && skipped <= kMostAdded; ++i) place += scale;
  for (int i = 0; i < out; ++i, place += scale) set(i, place);
  find_needed();
}

bool NearestAxis::plan_padded(double at, double length, int begin, int count, int out, bool flip, PaddingMode mode) {
  if (!padded_.plan(at, length, begin, count, out, mode)) return false;
  const float scale = static_cast<float>(count) / static_cast<float>(padded_.resized());
  from_ = padded_.from();
  for (int& each : from_) {
    if (each == kFill) continue;
    each = begin + std::min(static_cast<int>(static_cast<float>(padded_.first() + each) * scale), count - 1);
  }
  if (flip) std::reverse(from_.begin(), from_.end());
  find_needed();
  return true;
}

void NearestAxis::find_needed() {
  int first = kFill, last = kFill;
  for (const int each : from_) {
    if (each == kFill) continue;
    first = first == kFill ? each : std::min(first, each);
    last = std::max(last, each);
  }
  first_needed_ = std::max(first, 0);
  count_needed_ = first == kFill ? 0 : last - first + 1;
}

Rect NearestResizer::plan(const Box& box, const Rect& bounds, Size out, bool flip) {
  columns_.plan(box.x, box.width, bounds.x, bounds.width, out.width, flip, NearestRule::torch);
  rows_.plan(box.y, box.height, bounds.y, bounds.height, out.height, false, NearestRule::torch);
  return {columns_.first_needed(), rows_.first_needed(), columns_.count_needed(), rows_.count_needed()};
}

bool NearestResizer::plan_padded(const Box& box, const Rect& bounds, Size out, bool flip, Padding padding,
                                 Rect* region) {
  mask_fill_ = padding.mask_fill;
  const bool possible = columns_.plan_padded(box.x, box.width, bounds.x, bounds.width, out.width, flip, padding.mode) &&
                        rows_.plan_padded(box.y, box.height, bounds.y, bounds.height, out.height, false, padding.mode);
  *region = {columns_.first_needed(), rows_.first_needed(), columns_.count_needed(), rows_.count_needed()};
  return possible;
}

}  // namespace fastpipe
