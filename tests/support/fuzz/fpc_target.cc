#include <cstring>

#include "coefficients/block_kernels.h"
#include "decode.h"
#include "targets.h"

namespace fuzz {
namespace {

using namespace fastpipe;

constexpr int kDenominators = 4;

}  // namespace

std::string FpcTarget::run(Random* random, const Bytes& input, Tally* tally) {
  const Bytes exact_size(input.begin(), input.end());  // nothing is readable behind it
  const std::uint8_t* const data = exact_size.data();
  const std::size_t size = exact_size.size();
  if (!decoder_.open(data, size, size, kMostCompared).ok()) return "";
  const int denominator = 1 << random->below(kDenominators);
  const Size whole = decoder_.scaled_size(denominator);
  Rect region = {random->below(whole.width), random->below(whole.height), 0, 0};
  region.width = 1 + random->below(whole.width - region.x);
  region.height = 1 + random->below(whole.height - region.y);

  const auto decoded = [&](const BlockKernels& kernels, DecodeMethod method) {
    Decoded found;
    found.size = {region.width, region.height};
    found.rgb.resize(static_cast<std::size_t>(region.width) * static_cast<std::size_t>(region.height) * 3);
    const PixelSpan span = {found.rgb.data(), found.size, std::ptrdiff_t{3} * region.width};
    found.status = decoder_.open(data, size, size, kMostCompared);
    if (found.status.ok())
      found.status = decoder_.decode(denominator, region, rows_into(&span, {3, 8}), method, kernels);
    return found;
  };
  const Decoded expected = decoded(kScalarBlocks, DecodeMethod::libjpeg);
  for (const BlockKernels* kernels : all_block_kernels()) {
    const Decoded strips = decoded(*kernels, DecodeMethod::baseline);
    const Decoded libjpeg = decoded(*kernels, DecodeMethod::libjpeg);
    if (libjpeg.status.ok() != expected.status.ok()) return std::string(kernels->name) + " disagrees on the damage";
    if (expected.status.ok() && libjpeg.rgb != expected.rgb) return std::string(kernels->name) + " has other pixels";
    if (strips.status.ok() && expected.status.ok() && strips.rgb != expected.rgb) {
      return std::string("the strips differ with ") + kernels->name;
    }
  }
  tally->coefficients += expected.status.ok();

  const Status status = restorer_.whole(decoder_.header(), data, *best_block_kernels());
  if (status.ok()) {
    const Bytes jpeg(restorer_.jpeg(), restorer_.jpeg() + restorer_.jpeg_bytes());
    const Decoded restored = decode(&jpeg_, jpeg.data(), jpeg.size(), denominator, &region, DecodeMethod::libjpeg);
    if (restored.status.ok() && expected.status.ok() && restored.rgb != expected.rgb) {
      return "the JPEG that comes back has other pixels";
    }
  }
  restorer_.give_back();
  decoder_.give_back();
  return "";
}

}  // namespace fuzz
