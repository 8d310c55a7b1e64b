#include <cstring>

#include "decode.h"
#include "targets.h"

namespace fuzz {
namespace {

using namespace fastpipe;

Rect random_region(Random* random, Size whole) {
  Rect region;
  region.x = random->below(whole.width);
  region.y = random->below(whole.height);
  region.width = 1 + random->below(whole.width - region.x);
  region.height = 1 + random->below(whole.height - region.y);
  return region;
}

bool is_part(const Decoded& part, const Rect& region, const Decoded& whole) {
  const auto row_bytes = static_cast<std::size_t>(region.width) * 3;
  for (int y = 0; y < region.height; ++y) {
    const std::ptrdiff_t at = (std::ptrdiff_t{whole.size.width} * (region.y + y) + region.x) * 3;
    if (std::memcmp(part.rgb.data() + row_bytes * static_cast<std::size_t>(y), whole.rgb.data() + at, row_bytes) != 0)
      return false;
  }
  return true;
}

}  // namespace

std::string CompareTarget::run(Random* random, const Bytes& input, Tally* tally) {
  const Bytes exact_size(input.begin(), input.end());  // nothing is readable behind it
  const std::uint8_t* const data = exact_size.data();
  const std::size_t size = exact_size.size();
  const int denominator = 1 << random->below(4);
  if (!decoder_.open(data, size).ok()) return "";
  const Size whole_size = decoder_.scaled_size(denominator);
  if (std::int64_t{whole_size.width} * whole_size.height > kMostCompared) return "";
  const Rect region = random_region(random, whole_size);

  const Decoded whole = decode(&decoder_, data, size, denominator, nullptr, DecodeMethod::libjpeg);
  const Decoded whole_strips = decode(&decoder_, data, size, denominator, nullptr, DecodeMethod::baseline);
  const Decoded part = decode(&decoder_, data, size, denominator, &region, DecodeMethod::libjpeg);
  const Decoded part_strips = decode(&decoder_, data, size, denominator, &region, DecodeMethod::baseline);
  char where[120];
  std::snprintf(where, sizeof where, " (1/%d, region %d, %d, %d x %d of %d x %d)", denominator, region.x, region.y,
                region.width, region.height, whole_size.width, whole_size.height);
  if (whole_strips.status.ok() && !whole.status.ok()) {
    return std::string("only the own decoder takes it") + where + ": " + whole.status.detail;
  }
  if (whole_strips.status.ok() && whole_strips.rgb != whole.rgb) return std::string("the decoders differ") + where;
  if (part_strips.status.ok() && part.status.ok() && part_strips.rgb != part.rgb) {
    return std::string("the decoders differ in a part") + where;
  }
  if (whole.status.ok()) {
    if (part.status.ok() && !is_part(part, region, whole)) return std::string("a part differs from the whole") + where;
    if (part_strips.status.ok() && !is_part(part_strips, region, whole)) {
      return std::string("a part by the own decoder differs from the whole") + where;
    }
    if (!part.status.ok()) return std::string("a part is refused, the whole is not") + where + part.status.detail;
  }
  tally->compared += part.status.ok() && (whole.status.ok() || part_strips.status.ok());
  return "";
}

}  // namespace fuzz
