// A mask as it is stored -> its ids, whole or as a row of a batch.
#pragma once

#include <cstdint>
#include <vector>

#include "base/image.h"
#include "base/status.h"
#include "png/png_decoder.h"
#include "resize/nearest.h"

namespace fastpipe {

// Ids of 1 byte (uint8) or 4 (int32), row by row, without gaps.
struct IdSpan {
  void* data = nullptr;
  Size size;
  int bytes = 1;
};

// A thread's scratch. May throw only what allocation throws.
class MaskRow {
 public:
  PngDecoder* png() { return &png_; }

  // Decodes what `png` has opened and writes the crop; the bounds lie inside it, and the box inside the bounds unless
  // there is padding. Refuses a picture that is no mask, and ids that do not fit.
  Status fill(const Box& box, const Rect& bounds, bool flip, Padding padding, IdSpan out);

  // The whole mask; `out` has its size.
  Status fill(IdSpan out);

  // Lets go of memory that only a giant picture needs.
  void give_back() { png_.give_back(); }

 private:
  template <typename Id>
  void write(Id* out);

  PngDecoder png_;
  NearestResizer resizer_;
  std::vector<std::uint8_t> room_;  // a row that was packed
};

}  // namespace fastpipe
