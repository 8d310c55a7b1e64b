// Where the outputs of one direction lie among the inputs -> the weights of torch's interpolate of float32.
#pragma once

#include <cstddef>
#include <vector>

#include "resize/resampling.h"

namespace fastpipe {

// The inputs that have a part in an output, and how much: `weights` of `count` inputs from `first` on.
struct FloatTaps {
  int first;
  int count;
  const float* weights;
};

// Plans one direction of one picture at a time, and reuses its memory.
class FloatAxis {
 public:
  // `at`, `length`: of the box; `begin`, `count`: of the bounds, inside which it lies. Box and bounds tell of the
  // resize and of the cut as in Note [nearest]. Not for nearest.
  void plan(double at, double length, int begin, int count, int out, bool flip, Resampling resampling);

  // The inputs needed; what taps() calls input 0 is the first of them.
  int first_needed() const { return first_needed_; }
  int count_needed() const { return count_needed_; }

  FloatTaps taps(int output) const {
    const Place& place = places_[static_cast<std::size_t>(output)];
    return {place.first, place.count, weights_.data() + place.weights};
  }

 private:
  struct Place {
    int first;
    int count;
    std::size_t weights;
  };

  std::vector<Place> places_;
  std::vector<float> weights_;
  int first_needed_ = 0;
  int count_needed_ = 0;
};

}  // namespace fastpipe
