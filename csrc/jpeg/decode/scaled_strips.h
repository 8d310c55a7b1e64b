// Strips of coefficients -> rows of gray or RGBX of the crops that are wanted at one scale.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/image.h"
#include "jpeg/decode/coefficient_rows.h"
#include "jpeg/decode/color.h"
#include "jpeg/decode/crop_region.h"
#include "jpeg/decode/idct.h"
#include "jpeg/decode/strip_picture.h"

namespace fastpipe {

// What it makes is bit-identical to libjpeg-turbo's pixels. Note [strips] in baseline_decoder.h
class ScaledStrips {
 public:
  // Takes a picture at 1/denominator of its size (1, 2, 4 or 8), and forgets the crops of the last one.
  void begin(const StripPicture& picture, int denominator);

  // Wants these rows, too. Which MCUs they need.
  StripWindow add(const CropRows& rows);

  // What all of its crops need, and what they need of rows [top, bottom).
  const StripWindow& window() const { return window_; }
  StripWindow window(int top, int bottom) const;

  // Whether upsampling is as it mostly is. False: libjpeg-turbo does it otherwise.
  bool can_upsample() const;

  // Makes ready for strips of so many rows of MCUs.
  void lay_out(int strip_rows);

  // Transforms a strip and gives the rows that are now there. The coefficients begin at column strip.left, and the
  // strip has all columns of window(strip.top, strip.bottom). Strips come top down. False where an inverse DCT gives
  // up.
  bool take(const StripWindow& strip, const std::array<CoefficientRows, kMostComponents>& coefficients);

  // Lets go of memory that only a giant picture needs.
  void give_back() { give_back_if_giant(&plane_memory_); }

 private:
  struct Plane {
    std::uint8_t* first = nullptr;  // the first sample of the strip; there is a row above and one below
    std::ptrdiff_t stride = 0;
    int block = 0;    // the side of a block in samples
    int samples = 0;  // across

    std::uint8_t* row(int y) const { return first + y * stride; }
  };

  struct Wanted {
    Rect region;
    RowSink sink;
    StripWindow window;
  };

  StripWindow window_of(const Rect& region) const;
  Size colour_size() const;
  bool transform(const StripWindow& wanted, const StripWindow& strip,
                 const std::array<CoefficientRows, kMostComponents>& coefficients);
  void mend_edges(int top, int bottom);
  void keep_last_rows(int rows);
  static void copy_row(const Plane& plane, int from, int to);
  void give_rows(int end, int strip_top, const StripWindow& wanted);
  void convert_row(int y, int strip_top, const StripWindow& wanted, int left, int right, std::uint8_t* out);
  const std::uint8_t* color_row(const Plane& plane, int y, int strip_top, const StripWindow& wanted,
                                std::vector<std::uint8_t>* memory);

  const StripPicture* picture_ = nullptr;
  int wide_ = 1, high_ = 1;  // pixels of brightness for a sample of colour
  Size mcu_;                 // in pixels
  std::vector<Wanted> wanted_;
  StripWindow window_;
  int y_ = 0;  // the first row that has not been given
  std::array<Plane, kMostComponents> planes_;
  std::ptrdiff_t row_stride_ = 0;
  const IdctKernels* idct_ = nullptr;
  const ColorKernels* color_ = nullptr;

  // Scratch, used again.
  std::vector<std::uint8_t> plane_memory_;
  std::vector<std::uint16_t> sums_;
  std::vector<std::uint8_t> cb_, cr_;
  std::vector<std::uint8_t> rows_;
};

}  // namespace fastpipe
