// Rows of a picture's region -> one resized RGB picture: Pillow's antialiased BILINEAR, a separable triangle filter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "image.h"
#include "resize_kernels.h"
#include "status.h"

namespace fastpipe {

// Resizes one picture at a time; a thread keeps one and reuses its memory.
//   plan()    says which region of the picture the output needs
//   take()    is given the region's rows, top down, and shrinks or stretches each at once, while it is in the cache
//   finish()  puts the output's rows together from those
class Resizer {
 public:
  explicit Resizer(const ResizeKernels* kernels = best_kernels()) : kernels_(kernels) {}

  // `box` is what becomes the output; no pixel outside `bounds` has a part in it (bounds = box crops and then resizes,
  // bounds = picture resizes and then crops). `flip` mirrors left and right. The box lies inside the bounds.
  // Returns the region needed, which lies inside the bounds.
  Rect plan(Box box, Rect bounds, Size out, bool flip);

  // Rows as jpeg.h's RowSink gives them.
  void take(int y, int count, const std::uint8_t* rgbx, std::ptrdiff_t stride);

  // Writes the output; `out` has the size that was planned.
  void finish(PixelSpan out) const;

 private:
  // The weights of one direction.
  struct Axis {
    std::vector<Tap> taps;
    std::vector<std::int16_t> values;
    std::vector<double> exact;
    int per_output = 0;
    int shift = 0;

    void plan(double start, double length, int bounds_first, int bounds_count, int outputs);
    void reverse();
    // Makes the first input position needed number 0; returns that position and sets the count.
    int rebase(int* count);
    Weights weights() const;
  };

  const ResizeKernels* kernels_;
  Axis columns_;
  Axis rows_;
  std::vector<std::uint8_t> shrunk_;  // (region's rows + 1, shrunk_stride_): resized across, not yet down
  std::ptrdiff_t shrunk_stride_ = 0;
};

}  // namespace fastpipe
