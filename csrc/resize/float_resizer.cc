#include "resize/float_resizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/at_least.h"
#include "base/x86.h"

#define FASTPIPE_INLINE __attribute__((always_inline)) inline

namespace fastpipe {
namespace {

constexpr int kRounded = 4;  // products that are rounded together; Note [float arithmetic]
constexpr int kBlock = 64;   // sums of one block stay in the first-level cache

// `steps` apart, `kWidth` sums side by side.
template <int kWidth>
FASTPIPE_INLINE void weigh(const float* from, std::ptrdiff_t step, const FloatTaps& taps, int width, float* sums) {
  if (kWidth > 0) width = kWidth;
  for (int i = 0; i < width; ++i) sums[i] = from[i] * taps.weights[0];
  int j = 1;
  for (from += step; j < taps.count && j <= (taps.count - 1) / kRounded * kRounded; ++j, from += step) {
    for (int i = 0; i < width; ++i) sums[i] += from[i] * taps.weights[j];
  }
  for (; j < taps.count; ++j, from += step) {
    for (int i = 0; i < width; ++i) sums[i] = __builtin_fmaf(from[i], taps.weights[j], sums[i]);
  }
}

template <int kChannels>
FASTPIPE_INLINE void across_all(const float* line, const FloatAxis& axis, int outputs, float* out) {
  for (int i = 0; i < outputs; ++i, out += kChannels) {
    const FloatTaps taps = axis.taps(i);
    weigh<kChannels>(line + static_cast<std::ptrdiff_t>(taps.first) * kChannels, kChannels, taps, kChannels, out);
  }
}

FASTPIPE_INLINE void across_row(const float* line, int channels, const FloatAxis& axis, int outputs, float* out) {
  if (channels == 1) return across_all<1>(line, axis, outputs, out);
  if (channels == 3) return across_all<3>(line, axis, outputs, out);
  across_all<4>(line, axis, outputs, out);
}

FASTPIPE_INLINE void down_row(const float* rows, std::ptrdiff_t stride, const FloatTaps& taps, int count,
                              std::uint16_t* out) {
  constexpr float kMost = 65535;
  float sums[kBlock];
  for (int x = 0; x < count; x += kBlock) {
    const int width = std::min(kBlock, count - x);
    if (width == kBlock) {
      weigh<kBlock>(rows + x, stride, taps, kBlock, sums);
    } else {
      weigh<0>(rows + x, stride, taps, width, sums);
    }
    for (int i = 0; i < width; ++i) {
      out[x + i] = static_cast<std::uint16_t>(std::min(std::max(__builtin_rintf(sums[i]), 0.0F), kMost));
    }
  }
}

struct Loops {
  void (*across)(const float* line, int channels, const FloatAxis& axis, int outputs, float* out);
  void (*down)(const float* rows, std::ptrdiff_t stride, const FloatTaps& taps, int count, std::uint16_t* out);
};

// Without an instruction for it, a fused addition is a call; what comes of it is the same.
void across_plain(const float* line, int channels, const FloatAxis& axis, int outputs, float* out) {
  across_row(line, channels, axis, outputs, out);
}

void down_plain(const float* rows, std::ptrdiff_t stride, const FloatTaps& taps, int count, std::uint16_t* out) {
  down_row(rows, stride, taps, count, out);
}

#if defined(__x86_64__)
#define FASTPIPE_FMA __attribute__((target("avx2,fma")))

FASTPIPE_FMA void across_fused(const float* line, int channels, const FloatAxis& axis, int outputs, float* out) {
  across_row(line, channels, axis, outputs, out);
}

FASTPIPE_FMA void down_fused(const float* rows, std::ptrdiff_t stride, const FloatTaps& taps, int count,
                             std::uint16_t* out) {
  down_row(rows, stride, taps, count, out);
}

bool can_fuse() { return has_avx2() && __builtin_cpu_supports("fma"); }
#endif

const Loops& best_loops() {
#if defined(__x86_64__)
  static const Loops loops = can_fuse() ? Loops{across_fused, down_fused} : Loops{across_plain, down_plain};
#else
  static constexpr Loops loops = {across_plain, down_plain};
#endif
  return loops;
}

}  // namespace

Rect FloatResizer::plan(const Box& box, const Rect& bounds, Size out, bool flip, Resampling resampling, int channels) {
  columns_.plan(box.x, box.width, bounds.x, bounds.width, out.width, flip, resampling);
  rows_.plan(box.y, box.height, bounds.y, bounds.height, out.height, false, resampling);
  channels_ = channels;
  width_ = out.width;
  const std::ptrdiff_t outputs = static_cast<std::ptrdiff_t>(width_) * channels_;
  at_least(&line_, static_cast<std::size_t>(columns_.count_needed()) * static_cast<std::size_t>(channels_));
  at_least(&between_, static_cast<std::size_t>(outputs * rows_.count_needed()));
  return {columns_.first_needed(), rows_.first_needed(), columns_.count_needed(), rows_.count_needed()};
}

void FloatResizer::take(int y, int count, const std::uint8_t* rows, std::ptrdiff_t stride) {
  const std::ptrdiff_t outputs = static_cast<std::ptrdiff_t>(width_) * channels_;
  const int samples = columns_.count_needed() * channels_;
  for (int i = 0; i < count; ++i) {
    const std::uint8_t* const row = rows + i * stride;
    for (int x = 0; x < samples; ++x) {
      std::uint16_t sample;
      std::memcpy(&sample, row + 2 * static_cast<std::ptrdiff_t>(x), sizeof sample);
      line_[static_cast<std::size_t>(x)] = sample;
    }
    best_loops().across(line_.data(), channels_, columns_, width_, between_.data() + (y + i) * outputs);
  }
}

void FloatResizer::finish(PixelSpan out) {
  const std::ptrdiff_t outputs = static_cast<std::ptrdiff_t>(width_) * channels_;
  for (int y = 0; y < out.size.height; ++y) {
    const FloatTaps taps = rows_.taps(y);
    best_loops().down(between_.data() + taps.first * outputs, outputs, taps, static_cast<int>(outputs),
                      reinterpret_cast<std::uint16_t*>(out.row(y)));
  }
}

}  // namespace fastpipe
