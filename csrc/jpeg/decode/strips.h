// Coefficients, from whoever has them -> rows of gray or RGBX of one crop or of several, a strip of MCUs at a time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "jpeg/decode/coefficient_rows.h"
#include "jpeg/decode/crop_region.h"
#include "jpeg/decode/scaled_strips.h"
#include "jpeg/decode/strip_picture.h"

namespace fastpipe {

// Gives the coefficients of one picture, strip by strip, top down.
class StripSource {
 public:
  virtual ~StripSource() = default;

  // Is told what will be read, or more than that. How many rows of MCUs it likes to give at once: 1 or 2.
  virtual int begin(const StripWindow& all) = 0;

  // Writes those of a strip, whose columns may be fewer than were told. What it leaves alone is as the strip before
  // left it, or means nothing: it must not make an inverse DCT overflow. False where it gives up.
  virtual bool read(const StripWindow& strip, const std::array<CoefficientRows, kMostComponents>& to) = 0;

  // Where reading begins in a row of which `left` is the first MCU wanted.
  virtual int first_read(int left) const = 0;
};

// Note [crops together]
// Crops of one picture overlap. Of each strip, the MCUs between the leftmost and the rightmost that any crop needs are
// read once, transformed once for each scale, and coloured once; each crop is given its part of the rows. So nothing
// larger than a strip is kept, and all of it stays in the nearest cache. Each crop has the same pixels as by itself.
// Where crops lie so far apart that more is read than for each by itself, they are better decoded one by one.
class StripDecoder {
 public:
  // Whether this machine has vector kernels: without them, libjpeg-turbo is faster.
  static bool available();

  // Decodes these crops, in pixels of the picture at 1/denominator of its size (1, 2, 4 or 8), of one form: gray or RGB
  // of 8 bits. Gray is what brightness is: colours are not transformed. False where it gives up,
  // or where several are better decoded one by one; rows may then have been given already.
  bool decode(StripPicture picture, const CropRows* crops, std::size_t count, StripSource* source);

 private:
  static constexpr std::size_t kScales = 4;

  bool decode_all(const StripPicture& picture, const CropRows* crops, std::size_t count, StripSource* source);
  StripWindow window(int top, int bottom) const;
  bool cheaper_together(const StripSource& source) const;
  void lay_out(const StripPicture& picture, int strip_rows);

  StripWindow all_;                   // of the picture at hand
  std::vector<StripWindow> windows_;  // of its crops
  std::array<CoefficientRows, kMostComponents> coefficients_;

  // Scratch, used again.
  std::array<ScaledStrips, kScales> scales_;
  std::vector<std::int16_t> coefficient_memory_;
};

}  // namespace fastpipe
