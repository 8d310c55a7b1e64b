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
// Without antialiasing the curve stays as narrow as it is, and what lies beyond the bounds is taken to be as the pixel
// at the edge: this is torch's interpolate(antialias=False) of uint8 tensors, bit by bit. That rounds its weights to 16
// bits: to as many fraction bits as the greatest weight of the axis leaves. The greatest is one of the whole bounds as
// they would be resized, for torchvision resizes the whole and then cuts. The sums stay the same if such a weight gets
// zeros behind it, so the kernels know nothing of it. torch goes across first, whatever the size.
struct ResizeAxis::Filter {
  double scale, support, narrow, offset;
  int inputs;
  bool edges_go_on;  // Note [no antialiasing]
  int weight_bits = kWeightBits;

  double center(int output) const { return offset + (output + 0.5) * scale; }
  // Inputs [begin, end) have a part in the output around `center`.
  int end(double center) const { return std::min(static_cast<int>(center + support + 0.5), inputs); }
  int begin(double center) const {
    return std::min(std::max(static_cast<int>(center - support + 0.5), 0), end(center) - 1);
  }

  // What the pixels beyond the edge would have falls to the one at the edge: torch's order of additions.
  template <typename Curve>
  double greatest_weight(const Curve& curve) const {
    constexpr int kReach = static_cast<int>(Curve::kReach);
    const long outputs = std::lround(std::min(inputs / scale, 1e6));
    const long before = std::lround(std::clamp(offset / scale, -1e6, 1e6));
    double greatest = 0;
    for (long i = -before; i < outputs - before; ++i) {
      const double place = offset + (static_cast<double>(i) + 0.5) * scale - 0.5;
      const double nearest = std::floor(place);
      double sum = 0;
      double last = -1;
      for (int tap = 1 - kReach; tap <= kReach; ++tap) {
        const double input = std::clamp(nearest + tap, 0.0, static_cast<double>(inputs - 1));
        const double weight = curve(nearest + tap - place);
        sum = input == last ? sum + weight : weight;
        last = input;
        greatest = std::max(greatest, sum);
      }
    }
    return greatest;
  }
};

namespace {

// As torch's compute_index_ranges_int16_weights.
int bits_of_int16(double greatest) {
  int bits = 0;
  while (bits < kWeightBits && static_cast<int>(0.5 + greatest * (1 << (bits + 1))) < 1 << 15) ++bits;
  return bits;
}

}  // namespace

void ResizeAxis::plan(double start, double length, int bounds_first, int bounds_count, int outputs, bool reversed,
                      Resampling resampling, const ResizeKernels& kernels) {
  const bool cubic = resampling.interpolation == Interpolation::bicubic;
  const double scale = length / outputs;
  const double widened = resampling.antialias ? std::max(scale, 1.0) : 1.0;
  const double reach = cubic ? Cubic::kReach : Triangle::kReach;
  Filter filter = {scale, reach * widened, 1.0 / widened, start - bounds_first, bounds_count, !resampling.antialias};
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
  const auto weigh_all = [&](const auto& curve) {
    if (!resampling.antialias) filter.weight_bits = bits_of_int16(filter.greatest_weight(curve));
    for (int i = 0; i < outputs; i += kBlock) weigh(filter, curve, first, i, reversed);
  };
  if (cubic) {
    weigh_all(Cubic{resampling.antialias ? -0.5 : -0.75});
  } else {
    weigh_all(Triangle{});
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
      const double weight = exact[i] / sum[i] * (1 << f.weight_bits);
      weights[i] = static_cast<int>(weight < 0 ? weight - 0.5 : weight + 0.5) * (1 << (kWeightBits - f.weight_bits));
    }
    for (int i = 0; i < count; ++i) values[i * next * taps_ + j] = weights[i];
  }
}

}  // namespace fastpipe
