#include "resize/nearest.h"

#include <algorithm>
#include <cmath>

namespace fastpipe {

void NearestAxis::plan(double at, double length, int begin, int count, int out, bool flip) {
  // A box may be so small that what lies around it has no size that a number could hold.
  const double resized = std::clamp(std::rint(count * (out / length)), 1.0, 1e15);
  const double skipped = std::rint((at - begin) * (resized / count));
  const float scale = static_cast<float>(count) / static_cast<float>(resized);
  const auto last = static_cast<float>(count - 1);
  from_.resize(static_cast<std::size_t>(out));
  for (int i = 0; i < out; ++i) {
    const float place = std::floor(static_cast<float>(skipped + i) * scale);
    from_[static_cast<std::size_t>(flip ? out - 1 - i : i)] = begin + static_cast<int>(std::clamp(place, 0.0f, last));
  }
}

int NearestAxis::first_needed() const { return std::min(from_.front(), from_.back()); }

int NearestAxis::count_needed() const { return std::abs(from_.back() - from_.front()) + 1; }

Rect NearestResizer::plan(const Box& box, const Rect& bounds, Size out, bool flip) {
  columns_.plan(box.x, box.width, bounds.x, bounds.width, out.width, flip);
  rows_.plan(box.y, box.height, bounds.y, bounds.height, out.height, false);
  return {columns_.first_needed(), rows_.first_needed(), columns_.count_needed(), rows_.count_needed()};
}

}  // namespace fastpipe
