#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/picture.h"
#include "engine/picture_decoder.h"
#include "targets.h"

namespace fuzz {
namespace {

using namespace fastpipe;

// Memory of its very size for each part, so that a sanitizer sees a byte beyond.
Status read_part(void* context, std::uint64_t first, std::uint8_t* out, std::size_t count) {
  const auto* const input = static_cast<const Bytes*>(context);
  if (first > input->size() || count > input->size() - first) return error(Code::read_failed, "%s", "beyond its end");
  std::memcpy(out, input->data() + first, count);
  return {};
}

}  // namespace

std::string TiledTarget::run(Random* random, const Bytes& input, Tally* tally) {
  const Bytes head(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(std::min(input.size(), kTiledHeadBytes)));
  const PartReader rest = {const_cast<Bytes*>(&input), read_part};
  if (!decoder_.open(head.data(), head.size(), input.size(), rest, kMostPngPixels).ok()) return "";
  const int denominator = decoder_.has_scales() ? 1 << random->below(4) : 1;
  const Size size = decoder_.scaled_size(denominator);
  Bytes all(static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height) * 3);
  const PixelSpan whole = {all.data(), size, static_cast<std::ptrdiff_t>(size.width) * 3};
  if (!decoder_.decode(denominator, {0, 0, size.width, size.height}, rows_into(&whole, {3, 8})).ok()) return "";

  const int left = random->below(size.width), top = random->below(size.height);
  const Rect region = {left, top, 1 + random->below(size.width - left), 1 + random->below(size.height - top)};
  Bytes some(static_cast<std::size_t>(region.width) * static_cast<std::size_t>(region.height) * 3);
  const PixelSpan part = {some.data(), {region.width, region.height}, static_cast<std::ptrdiff_t>(region.width) * 3};
  if (!decoder_.decode(denominator, region, rows_into(&part, {3, 8})).ok()) {
    return "a KEY.tif is decoded in whole and not in part";
  }
  for (int y = 0; y < region.height; ++y) {
    const std::uint8_t* const expected = whole.row(top + y) + static_cast<std::ptrdiff_t>(left) * 3;
    if (std::memcmp(part.row(y), expected, static_cast<std::size_t>(part.stride)) != 0) {
      return "a KEY.tif's pixels differ in part";
    }
  }
  ++tally->tifs;
  return "";
}

}  // namespace fuzz
