#include "jpeg/decode/coefficient_store.h"

#include <algorithm>
#include <cstdint>

namespace fastpipe {
namespace {

constexpr std::size_t kAlignment = 64;

}  // namespace

void CoefficientStore::plan(const StripPicture& picture, const std::vector<StripWindow>& windows) {
  filled_ = false;
  components_ = picture.components;
  across_ = {picture.across, 1, 1};
  down_ = {picture.down, 1, 1};
  all_ = windows.front();
  for (const StripWindow& each : windows) {
    all_.left = std::min(all_.left, each.left);
    all_.right = std::max(all_.right, each.right);
    all_.top = std::min(all_.top, each.top);
    all_.bottom = std::max(all_.bottom, each.bottom);
  }
  widen(&all_);
  rows_.assign(static_cast<std::size_t>(all_.bottom - all_.top), {all_.right, all_.left});
  for (const StripWindow& each : windows) {
    for (int row = each.top; row < each.bottom; ++row) {
      Columns& columns = rows_[static_cast<std::size_t>(row - all_.top)];
      columns.left = std::min(columns.left, each.left & ~1);
      columns.right = std::max(columns.right, each.right);
    }
  }
}

StripWindow CoefficientStore::columns(int top, int bottom) const {
  StripWindow found = all_;
  found.left = all_.right;
  found.right = all_.left;
  found.top = top;
  found.bottom = bottom;
  for (int row = top; row < bottom; ++row) {
    const Columns& columns = rows_[static_cast<std::size_t>(row - all_.top)];
    found.left = std::min(found.left, columns.left);
    found.right = std::max(found.right, columns.right);
  }
  return found;
}

bool CoefficientStore::make_room() {
  std::array<std::size_t, kMostComponents> begins = {};
  std::size_t count = 0;
  for (std::size_t c = 0; c < static_cast<std::size_t>(components_); ++c) {
    planes_[c].pairs = ceil_div((all_.right - all_.left) * across_[c], 2);
    begins[c] = count;
    count += static_cast<std::size_t>(planes_[c].pairs) *
             static_cast<std::size_t>((all_.bottom - all_.top) * down_[c]) * CoefficientRows::kPairStride;
  }
  const std::size_t needed = count + kAlignment / sizeof(std::int16_t);
  if (needed * sizeof(std::int16_t) > kKeptBytes) return false;
  if (memory_.size() < needed) memory_.resize(needed);
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
  std::int16_t* const first = memory_.data() + (kAlignment - address % kAlignment) % kAlignment / sizeof(std::int16_t);
  for (std::size_t c = 0; c < static_cast<std::size_t>(components_); ++c) planes_[c].first = first + begins[c];
  return true;
}

std::array<CoefficientRows, kMostComponents> CoefficientStore::at(int row, int left) const {
  std::array<CoefficientRows, kMostComponents> found = planes_;
  for (std::size_t c = 0; c < static_cast<std::size_t>(components_); ++c) {
    found[c].first = planes_[c].block((row - all_.top) * down_[c], (left - all_.left) * across_[c]);
  }
  return found;
}

}  // namespace fastpipe
