// Where the outputs of one direction lie among the inputs -> the weights of Pillow's BILINEAR or BICUBIC.
#pragma once

#include <cstdint>
#include <vector>

#include "resize/resampling.h"
#include "resize/resize_kernels.h"

namespace fastpipe {

// Plans one direction of one picture at a time, and reuses its memory.
class ResizeAxis {
 public:
  // [start, start + length) becomes `outputs` positions, mirrored if `reversed`; no input outside [bounds_first,
  // bounds_first + bounds_count) has a part in it. Not for nearest. The kernels say how the weights are laid out.
  void plan(double start, double length, int bounds_first, int bounds_count, int outputs, bool reversed,
            Resampling resampling, const ResizeKernels& kernels);

  // The inputs needed; what weights() calls input 0 is the first of them.
  int first_needed() const { return first_needed_; }
  int count_needed() const { return count_needed_; }

  Weights weights() const { return {first_.data(), values_.data(), taps_, outputs_}; }

 private:
  static constexpr int kBlock = 32;  // outputs whose weights are computed side by side
  struct Filter;

  // The weights of the next few outputs from `output` on, by a curve: a function of the distance in input pixels, or,
  // where the picture shrinks, in output pixels. `first` is the first input needed, counted from the bounds.
  template <typename Curve>
  void weigh(const Filter& filter, const Curve& curve, int first, int output, bool reversed);

  int first_needed_ = 0;
  int count_needed_ = 0;
  int taps_ = 0;
  int outputs_ = 0;
  std::vector<std::int32_t> first_;
  std::vector<std::int32_t> values_;
  std::vector<double> exact_;  // (taps, kBlock)
};

}  // namespace fastpipe
