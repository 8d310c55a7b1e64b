#include "resize/resize_axis.h"

#include <algorithm>
#include <cmath>

namespace fastpipe {
namespace {

int round_up(int value, int group) { return (value + group - 1) / group * group; }

// Of the distance from an output's centre, 1 at 0.
struct Triangle {
  static constexpr double kReach = 1.0;  // 0 beyond

  double operator()(double distance) const { return std::max(1.0 - std::abs(distance), 0.0); }
};

// The cubic convolution of Keys, as Pillow computes it: his -0.5 where it averages, torch's -0.75 where it does not.
struct Cubic {
  static constexpr double kReach = 2.0;
  double a;

  double operator()(double distance) const {
    const double x = std::abs(distance);
    const double near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    const double far = (((x - 5) * x + 8) * x - 4) * a;
    return x < 1.0 ? near : x < kReach ? far : 0.0;
  }
};

}  // namespace

// Where Pillow's Resample.c (precompute_coeffs, normalize_coeffs_8bpc) looks for an output's inputs, operation by
// operation: a curve that reaches one or two input pixels to each side, or, where the picture shrinks, as many times
// the input pixels that one output pixel covers; cut off at the bounds and normalised.
//
// Note [no antialiasing]
// Without antialiasing the curve stays as narrow as it is: this is torch's interpolate(antialias=False), but for
// rounding, which there is that of float32. What lies beyond the bounds is taken to be as the pixel at the edge.
struct ResizeAxis::Filter {
  double scale, support, narrow, offset;
  int inputs;
  bool edges_go_on;  // Note [no antialiasing]

  double center(int output) const { return offset + (output + 0.5) * scale; }
  // Inputs [begin, end) have a part in the output around `center`.
  int end(double center) const { return std::min(static_cast<int>(center + support + 0.5), inputs); }
  int begin(double center) const {
    return std::min(std::max(static_cast<int>(center - support + 0.5), 0), end(center) - 1);
  }
};

void ResizeAxis::plan(double start, double length, int bounds_first, int bounds_count, int outputs, bool reversed,
                      Resampling resampling, const ResizeKernels& kernels) {
  const bool cubic = resampling.interpolation == Interpolation::bicubic;
  const double scale = length / outputs;
  const double widened = resampling.antialias ? std::max(scale, 1.0) : 1.0;
  const double reach = cubic ? Cubic::kReach : Triangle::kReach;
  const Filter filter = {scale,        reach * widened,      1.0 / widened, start - bounds_first,
                         bounds_count, !resampling.antialias};
  int most = 1;
  for (int i = 0; i < outputs; ++i) {
    const double center = filter.center(i);
    most = std::max(most, filter.end(center) - filter.begin(center));
  }
  const int first = filter.begin(filter.center(0));
  first_needed_ = bounds_first + first;
  count_needed_ = filter.end(filter.center(outputs - 1)) - first;
  outputs_ = outputs;
  taps_ = round_up(most, kernels.tap_group);

  const std::size_t slots = static_cast<std::size_t>(round_up(outputs, kOutputGroup));
  first_.resize(slots);
  values_.resize(slots * static_cast<std::size_t>(taps_));
  exact_.resize(static_cast<std::size_t>(taps_) * kBlock);
  for (int i = 0; i < outputs; i += kBlock) {
    if (cubic) {
      weigh(filter, Cubic{resampling.antialias ? -0.5 : -0.75}, first, i, reversed);
    } else {
      weigh(filter, Triangle{}, first, i, reversed);
    }
  }
  std::fill(first_.begin() + outputs, first_.end(), first_[static_cast<std::size_t>(outputs) - 1]);
  std::fill(values_.begin() + static_cast<std::ptrdiff_t>(outputs) * taps_, values_.end(), 0);
  if (kernels.arrange != nullptr) kernels.arrange(values_.data(), static_cast<std::ptrdiff_t>(values_.size()));
}

// The loops over a block's outputs have no branches and a fixed length: compilers turn them into SIMD.
template <typename Curve>
void ResizeAxis::weigh(const Filter& filter, const Curve& curve, int first, int output, bool reversed) {
  const int last_window = std::max(first + count_needed_ - taps_, first);
  double center[kBlock], window[kBlock], begin[kBlock], end[kBlock], sum[kBlock];
  std::int32_t window_of[kBlock];
  const int last_output = outputs_ - 1;
  const Filter f = filter;  // a copy, which no store can change
  for (int i = 0; i < kBlock; ++i) {
    center[i] = f.center(std::min(output + i, last_output));  // beyond the last: the last again
    const int first_input = f.begin(center[i]);
    window_of[i] = std::min(first_input, last_window);
    window[i] = window_of[i];
    begin[i] = first_input;
    end[i] = f.end(center[i]);
    sum[i] = 0;
  }
  for (int j = 0; j < taps_; ++j) {
    double* const exact = &exact_[static_cast<std::size_t>(j) * kBlock];
    for (int i = 0; i < kBlock; ++i) {
      const double input = window[i] + j;
      const double weight = curve((input - center[i] + 0.5) * f.narrow);
      exact[i] = (input >= begin[i]) & (input < end[i]) ? weight : 0.0;
      sum[i] += exact[i];  // the zeros around an output's own inputs change nothing
    }
  }
  for (int i = 0; i < kBlock; ++i) {
    const auto at = [&](double input) -> double& {
      return exact_[static_cast<std::size_t>(input - window[i]) * kBlock + static_cast<std::size_t>(i)];
    };
    if (f.edges_go_on) {
      const double nearest = std::floor(center[i]);
      for (double input = nearest - Curve::kReach; input <= nearest + Curve::kReach; ++input) {
        if (input >= 0 && input < f.inputs) continue;
        const double weight = curve(input - center[i] + 0.5);
        at(input < 0 ? 0 : f.inputs - 1) += weight;
        sum[i] += weight;
      }
    }
    if (sum[i] != 0) continue;
    at(begin[i]) = 1;
    sum[i] = 1;  // rounding left the only pixel just outside the curve
  }
  const int count = std::min(kBlock, outputs_ - output);
  const std::ptrdiff_t slot = reversed ? outputs_ - 1 - output : output;
  const std::ptrdiff_t next = reversed ? -1 : 1;
  for (int i = 0; i < count; ++i) first_[static_cast<std::size_t>(slot + i * next)] = window_of[i] - first;
  std::int32_t* const values = values_.data() + slot * taps_;
  for (int j = 0; j < taps_; ++j) {
    const double* const exact = &exact_[static_cast<std::size_t>(j) * kBlock];
    std::int32_t weights[kBlock];
    for (int i = 0; i < kBlock; ++i) {
      const double weight = exact[i] / sum[i] * (1 << kWeightBits);
      weights[i] = static_cast<int>(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
    for (int i = 0; i < count; ++i) values[i * next * taps_ + j] = weights[i];
  }
}

}  // namespace fastpipe
