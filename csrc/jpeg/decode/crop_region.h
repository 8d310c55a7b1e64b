// What one of several crops needs of a picture, and who takes it.
#pragma once

#include "base/image.h"
#include "base/row_sink.h"

namespace fastpipe {

// In pixels of the picture at 1/denominator of its size (1, 2, 4 or 8).
struct CropRegion {
  int denominator = 1;
  Rect region;
};

// The sink is given the region's rows, and counts them from its top.
struct CropRows {
  CropRegion crop;
  RowSink sink;
};

}  // namespace fastpipe
