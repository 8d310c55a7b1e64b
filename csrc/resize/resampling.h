// How a resize finds a value among its neighbours.
#pragma once

#include <cstdint>

namespace fastpipe {

// By Pillow's names. Nearest makes no new values: each pixel of the output is one of the picture.
enum class Interpolation : std::uint8_t { bilinear, bicubic, nearest };

struct Resampling {
  Interpolation interpolation = Interpolation::bilinear;
  bool antialias = true;  // where the picture shrinks, all pixels that an output pixel covers have a part in it

  // Whether a picture that was decoded at a fraction of its size may stand for the whole one.
  bool averages() const { return antialias && interpolation != Interpolation::nearest; }
};

}  // namespace fastpipe
