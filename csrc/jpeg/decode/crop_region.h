// What one of several crops needs of a picture.
#pragma once

#include "base/image.h"

namespace fastpipe {

// In pixels of the picture at 1/denominator of its size (1, 2, 4 or 8).
struct CropRegion {
  int denominator = 1;
  Rect region;
};

}  // namespace fastpipe
