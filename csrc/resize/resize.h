// Rows of a picture's region -> one resized picture: Pillow's BILINEAR, BICUBIC and NEAREST, bit by bit; of 16 bits,
// torch's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/image.h"
#include "base/status.h"
#include "resize/float_resizer.h"
#include "resize/nearest.h"
#include "resize/resampling.h"
#include "resize/resize_axis.h"
#include "resize/resize_kernels.h"

namespace fastpipe {

// Resizes one picture at a time; a thread keeps one and reuses its memory.
//   plan()    says which region of the picture the output needs
//   take()    is given the region's rows, top down, and resizes each across at once, while it is in the cache
//   finish()  puts the output's rows together from those
// Where the height shrinks by far more than the width, resizing down comes first, as in Pillow 13: take() then keeps
// the rows. The order matters by at most a bit, since the result of the first pass is rounded to bytes.
// For nearest, and where nothing changes its size, take() picks the columns, and finish() the rows.
//
// Note [channels]
// The kernels resize pixels of four bytes across. So four rows of gray are laid side by side, as if they were the
// channels of one. RGBA is resized as Pillow does: colours are multiplied by their alpha before, and divided after.
// Down, a kernel sees bytes, whatever they are.
class Resizer {
 public:
  explicit Resizer(const ResizeKernels* kernels = best_kernels()) : kernels_(kernels) {}

  // `box` is what becomes the output; no pixel outside `bounds` has a part in it (bounds = box crops and then resizes,
  // bounds = picture resizes and then crops). `flip` mirrors left and right. The box lies inside the bounds.
  // Returns the region needed, which lies inside the bounds.
  Rect plan(Box box, Rect bounds, Size out, bool flip, Resampling resampling = {}, PixelForm form = {});

  // Rows as a RowSink is given them.
  void take(int y, int count, const std::uint8_t* rows, std::ptrdiff_t stride);

  // Writes the output; `out` has the size that was planned, and pixels of form.bytes().
  void finish(PixelSpan out);

  // Lets go of memory that only a giant picture needs.
  void give_back() {
    give_back_if_giant(&between_);
    float_.give_back();
  }

 private:
  const ResizeKernels* kernels_;
  PixelForm form_;
  FloatResizer float_;  // of 16 bits, but for nearest
  ResizeAxis columns_;
  ResizeAxis rows_;
  bool nearest_ = false;
  NearestAxis nearest_columns_;
  NearestAxis nearest_rows_;
  bool down_first_ = false;
  std::ptrdiff_t region_bytes_ = 0;    // of a row of the region, as it is decoded
  std::ptrdiff_t output_bytes_ = 0;    // of a row of the output, to whole groups
  std::vector<std::uint8_t> between_;  // (rows, between_stride_): after the first pass, or before both
  std::ptrdiff_t between_stride_ = 0;
  std::vector<std::uint8_t> lines_;    // rows of the region's width between the passes, if down is first
  std::vector<std::uint8_t> outputs_;  // rows of the output, if down is first
  std::vector<std::uint8_t> quads_;    // of gray rows, or of premultiplied ones; Note [channels]
  std::vector<std::uint8_t> quads_out_;

  Rect plan_nearest(Box box, Rect bounds, Size out, bool flip);
  void pick(const std::uint8_t* row, std::uint8_t* to) const;
  void across(const std::uint8_t* rows, std::ptrdiff_t stride, int count, std::uint8_t* out, std::ptrdiff_t out_stride);
  void gray_across(const std::uint8_t* rows, std::ptrdiff_t stride, int count, std::uint8_t* out,
                   std::ptrdiff_t out_stride);
  const std::uint8_t* premultiplied(const std::uint8_t* rows, std::ptrdiff_t stride, int count);
  void finish_down_first(PixelSpan out);
  // Output row `y` of the pass down.
  void down(int y, std::uint8_t* out, int bytes);
};

}  // namespace fastpipe
