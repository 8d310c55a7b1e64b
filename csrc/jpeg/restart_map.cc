#include "jpeg/restart_map.h"

#include <cstring>

#include "base/image.h"
#include "jpeg/markers.h"

namespace fastpipe {

bool RestartMap::find(const std::uint8_t* data, std::size_t size, std::size_t intervals) {
  data_ = data;
  begins_.clear();
  give_back_if_giant(&begins_);
  if (intervals > size) return false;  // each has a byte at least; and no allocation is larger than the file
  begins_.reserve(intervals + 1);
  begins_.push_back(0);
  const std::uint8_t* at = data;
  const std::uint8_t* const end = data + size;
  while (begins_.size() <= intervals) {
    at = static_cast<const std::uint8_t*>(std::memchr(at, 0xFF, static_cast<std::size_t>(end - at)));
    if (at == nullptr || end - at < 2) break;
    const std::uint8_t code = at[1];
    at += 2;
    if (code == marker::kStuffing) continue;
    const bool last = begins_.size() == intervals;
    const auto expected = last ? marker::kEnd : static_cast<std::uint8_t>(marker::kRestart + (begins_.size() - 1) % 8);
    if (code != expected) break;
    begins_.push_back(static_cast<std::size_t>(at - data));
  }
  if (begins_.size() == intervals + 1) return true;
  begins_.clear();
  return false;
}

}  // namespace fastpipe
