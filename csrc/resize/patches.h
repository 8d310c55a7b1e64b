// A row as a vision transformer reads it: square patches, one behind the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/image.h"

namespace fastpipe {

// Note [order of patches]
// Patches come row by row, from left to right. A model that merges patches, merge x merge of them into one token, reads
// those of a token one behind the other: then squares of patches come row by row, and so do the patches in each square.
// In a patch, pixels come row by row.
struct PatchForm {
  int side = 0;   // of a patch, in pixels; 0: rows are pictures
  int merge = 1;  // patches on a side of a square

  // Whether a row of this size consists of whole squares.
  bool divides(Size size) const {
    const int square = side * merge;
    return square > 0 && size.width % square == 0 && size.height % square == 0;
  }
};

// One row at a time; a thread keeps one and reuses its memory.
class PatchWriter {
 public:
  // The memory where the picture is made, of this size.
  PixelSpan room(Size size, int pixel_bytes);

  // Puts the room's pixels where they go. PatchForm::divides is true of the room's size.
  void write(PatchForm form, int pixel_bytes, std::uint8_t* patches) const;

  // Lets go of memory that only a giant picture needs.
  void give_back() { give_back_if_giant(&room_); }

 private:
  Size size_;
  std::vector<std::uint8_t> room_;
};

}  // namespace fastpipe
