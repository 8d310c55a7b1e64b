#include "resize/float_resizer.h"

#include <cstring>

#include "base/at_least.h"
#include "resize/float_loops.h"

namespace fastpipe {

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
    float_loops().across(line_.data(), channels_, columns_, width_, between_.data() + (y + i) * outputs);
  }
}

void FloatResizer::finish(PixelSpan out) {
  const std::ptrdiff_t outputs = static_cast<std::ptrdiff_t>(width_) * channels_;
  for (int y = 0; y < out.size.height; ++y) {
    const FloatTaps taps = rows_.taps(y);
    float_loops().down_rounded(between_.data() + taps.first * outputs, outputs, taps, static_cast<int>(outputs),
                               reinterpret_cast<std::uint16_t*>(out.row(y)));
  }
}

}  // namespace fastpipe
