// A map as it is stored, an array (height, width, channels) that lies on a picture -> its crop, resized, as a row.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/image.h"
#include "base/status.h"
#include "resize/float_axis.h"
#include "resize/nearest.h"
#include "resize/padding.h"
#include "resize/resampling.h"

namespace fastpipe {

enum class MapNumber : std::uint8_t { float16, float32, uint8, uint16 };

// How the numbers of maps are stored, and how their rows are made.
struct MapForm {
  int channels = 0;  // 0: rows are no maps
  MapNumber number = MapNumber::float32;
  // A number that stands for none, besides NaN.
  float invalid = std::numeric_limits<float>::quiet_NaN();
  // Bit c: the numbers of channel c change their signs in a mirrored row.
  std::uint64_t negated = 0;

  int number_bytes() const { return number == MapNumber::float32 ? 4 : number == MapNumber::uint8 ? 1 : 2; }
  int bytes() const { return channels * number_bytes(); }  // of a pixel
  bool is_valid(float value) const { return !(std::isnan(value) || value == invalid); }
  // What stands in a hole, and what outside of the picture.
  float hole() const { return invalid; }
  float outside() const { return std::isnan(invalid) ? 0.0F : invalid; }
};

// Note [invalid numbers]
// A hole of a depth map must not bleed into what lies around it. So a number of the row is a weighted mean of the valid
// numbers alone, as long as they have half of the weight; else it is invalid itself. Their weights are resized as
// further channels of the map, which hold 1 where a number is valid. A region without holes needs none.

// A thread's scratch; reuses its memory. May throw only what allocation throws.
class MapRow {
 public:
  // Plans a crop. False if it is impossible. `needed`: the rows of the map that the crop needs, from y on, as high; 0
  // high if the row is all fill.
  bool plan(const Box& box, const Rect& bounds, Size out, bool flip, Resampling resampling, Padding padding,
            const MapForm& form, Rect* needed);

  // Writes the row that was planned.
  //   rows: of the map, the needed ones, without gaps
  //   width: of the map
  void fill(const std::uint8_t* rows, int width, PixelSpan out);

  // Lets go of memory that only a giant map needs.
  void give_back();

 private:
  bool plan_nearest(const Box& box, const Rect& bounds, Size out);
  bool plan_weighted(const Box& box, const Rect& bounds, Size out, Resampling resampling);
  void fill_nearest(const std::uint8_t* rows, int width, PixelSpan out) const;
  void fill_weighted(const std::uint8_t* rows, int width, PixelSpan out);
  bool load(const std::uint8_t* rows, int width);
  void add_weights();
  void resize();
  void spread(PixelSpan out) const;
  void negate(PixelSpan out) const;

  MapForm form_;
  bool nearest_ = false;
  bool flip_ = false;
  Padding padding_;
  NearestAxis nearest_columns_;
  NearestAxis nearest_rows_;
  FloatAxis columns_;
  FloatAxis rows_;
  // Of each pixel of the row, which of the resized ones it is, or kFill.
  PaddedAxis padded_columns_;
  PaddedAxis padded_rows_;
  Size resized_size_;
  int first_column_ = 0;  // of the map, that is needed
  int column_count_ = 0;
  int row_count_ = 0;
  int values_per_pixel_ = 1;     // the channels, and as many weights where numbers are invalid
  std::vector<float> region_;    // (row_count_, column_count_, values_per_pixel_)
  std::vector<float> weighted_;  // room for `region_` with weights
  std::vector<float> between_;   // (row_count_, resized_size_.width, values_per_pixel_)
  std::vector<float> resized_;   // (resized_size_, values_per_pixel_)
};

}  // namespace fastpipe
