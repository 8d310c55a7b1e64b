// What transcoding is asked to do, and what it finds.
#pragma once

#include <cstdint>

#include "jpeg/decode/jpeg.h"

namespace fastpipe {

// What the source turned out to be.
struct JpegInfo {
  int width = 0;
  int height = 0;
  int components = 0;  // 1 gray, 3 colour, 4 CMYK or YCCK
  int precision = 0;   // bits a sample
  bool progressive = false;
  bool arithmetic = false;
  bool stray_bytes = false;  // bytes that belong to no segment were skipped
  bool exact = false;        // the output has the source's coefficients
};

struct TranscodeOptions {
  std::int64_t max_pixels = kMaxPixels;
  int max_scans = 256;
  int tile_width = 0;       // pixels between restart markers, about; 0: none. Note [tile width]
  bool check_only = false;  // read the whole file and judge it, write nothing
};

}  // namespace fastpipe
