// A JPEG and a region -> pixels, or the status that says why not.
#pragma once

#include <cstdint>
#include <vector>

#include "base/image.h"
#include "engine/picture.h"
#include "jpeg/decode/jpeg.h"

namespace fuzz {

// Larger pictures are not compared: their headers mostly lie, and the time is better spent on others.
constexpr std::int64_t kMostCompared = 1 << 18;

struct Decoded {
  fastpipe::Status status;
  fastpipe::Size size;            // of the region
  std::vector<std::uint8_t> rgb;  // rows of the region
};

inline Decoded decode(fastpipe::JpegDecoder* decoder, const std::uint8_t* data, std::size_t size, int denominator,
                      const fastpipe::Rect* region, fastpipe::DecodeMethod method) {
  Decoded decoded;
  decoded.status = decoder->open(data, size);
  if (!decoded.status.ok()) return decoded;
  const fastpipe::Size whole = decoder->scaled_size(denominator);
  const fastpipe::Rect all = {0, 0, whole.width, whole.height};
  const fastpipe::Rect wanted = region != nullptr ? *region : all;
  decoded.size = {wanted.width, wanted.height};
  decoded.rgb.resize(static_cast<std::size_t>(wanted.width) * static_cast<std::size_t>(wanted.height) * 3);
  const fastpipe::PixelSpan span = {decoded.rgb.data(), decoded.size, std::ptrdiff_t{3} * wanted.width};
  decoded.status = decoder->decode(denominator, wanted, fastpipe::rows_into(&span, {3, 8}), method);
  return decoded;
}

}  // namespace fuzz
