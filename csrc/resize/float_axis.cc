#include "resize/float_axis.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace fastpipe {
namespace {

// A box may be so small that what lies around it has no size that a number could hold.
constexpr double kMostPixels = 1e9;

// Curves of the distance from an output's centre, operation by operation as torch's compiled code has them: where it
// fuses a product and a sum, so do these.
struct FloatTriangle {
  static constexpr float kReach = 1;

  float operator()(float x) const { return std::max(1.0F - std::abs(x), 0.0F); }
};

// The cubic convolution of Keys.
struct FloatCubic {
  static constexpr float kReach = 2;
  float a;

  float operator()(float distance) const {
    const float x = std::abs(distance);
    if (x < 1) return std::fma(std::fma(a + 2, x, -(a + 3)) * x, x, 1.0F);
    return x < kReach ? std::fma(std::fma(std::fma(a, x, -5 * a), x, 8 * a), x, -4 * a) : 0.0F;
  }
};

}  // namespace

// Source: _compute_indices_min_size_weights_aa in torch's UpSampleKernel.cpp; its order of additions, its mixture of
// float32 and float64. Without antialiasing the curve keeps its width, and what lies beyond the edge is as the pixel at
// the edge.
void FloatAxis::plan(double at, double length, int begin, int count, int out, bool flip, Resampling resampling) {
  const double resized = std::clamp(std::rint(count * (out / length)), 1.0, kMostPixels);
  const double skipped = std::rint((at - begin) * (resized / count));
  const float scale = static_cast<float>(count) / static_cast<float>(resized);
  const bool wide = resampling.antialias && scale >= 1;
  const float narrow = wide ? 1 / scale : 1.0F;
  places_.clear();
  weights_.clear();
  const auto weigh_all = [&](const auto& curve) {
    const float reach = wide ? curve.kReach * scale : curve.kReach;
    for (int i = 0; i < out; ++i) {
      const auto center = static_cast<float>(scale * (skipped + (flip ? out - 1 - i : i) + 0.5));
      const auto before = static_cast<std::int64_t>(std::floor((center - reach) + 0.5));
      const auto beyond = static_cast<std::int64_t>((center + reach) + 0.5);
      const auto first = static_cast<int>(std::clamp<std::int64_t>(before, 0, count - 1));
      const auto end = static_cast<int>(std::clamp<std::int64_t>(beyond, first + 1, count));
      const int most = static_cast<int>(std::ceil(reach)) * 2 + 1;
      const Place place = {first, std::min(end - first, most), weights_.size()};
      weights_.resize(place.weights + static_cast<std::size_t>(place.count));
      float* const weights = weights_.data() + place.weights;
      float sum = 0;
      // Inputs beyond the edges count only where the edge goes on.
      const std::int64_t from = resampling.antialias ? first : before;
      const std::int64_t to = resampling.antialias ? first + place.count : beyond;
      for (std::int64_t j = from; j < to; ++j) {
        const auto distance = static_cast<float>((static_cast<double>(static_cast<float>(j) - center) + 0.5) * narrow);
        const float weight = curve(distance);
        weights[std::clamp<std::int64_t>(j - first, 0, place.count - 1)] += weight;
        sum += weight;
      }
      for (int j = 0; j < place.count && sum != 0; ++j) weights[j] /= sum;
      places_.push_back(place);
    }
  };
  if (resampling.interpolation == Interpolation::bicubic) {
    weigh_all(FloatCubic{resampling.antialias ? -0.5F : -0.75F});
  } else {
    weigh_all(FloatTriangle{});
  }
  const Place& low = flip ? places_.back() : places_.front();
  const Place& high = flip ? places_.front() : places_.back();
  first_needed_ = begin + low.first;
  count_needed_ = high.first + high.count - low.first;
  for (Place& place : places_) place.first -= first_needed_ - begin;
}

}  // namespace fastpipe
