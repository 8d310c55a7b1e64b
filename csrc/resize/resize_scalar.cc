// The reference of the resize's inner loops, in plain C++.
#include <algorithm>

#include "resize/resize_kernels.h"

namespace fastpipe {
namespace {

std::uint8_t finished(std::int32_t sum) { return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255)); }

template <int kChannels>
void horizontal(const std::uint8_t* rgbx, std::ptrdiff_t rgbx_stride, int count, std::uint8_t* rgb,
                std::ptrdiff_t rgb_stride, const Weights& weights) {
  for (; count > 0; --count, rgbx += rgbx_stride, rgb += rgb_stride) {
    for (int i = 0; i < weights.outputs; ++i) {
      const std::uint8_t* in = rgbx + static_cast<std::ptrdiff_t>(weights.first[i]) * 4;
      const std::int32_t* values = weights.of(i);
      std::int32_t sums[kChannels];
      std::fill_n(sums, kChannels, kHalf);
      for (int j = 0; j < weights.taps; ++j, in += 4) {
        for (int c = 0; c < kChannels; ++c) sums[c] += in[c] * values[j];
      }
      for (int c = 0; c < kChannels; ++c) rgb[kChannels * i + c] = finished(sums[c]);
    }
  }
}

void vertical(const std::uint8_t* rows, std::ptrdiff_t stride, const std::int32_t* values, int taps, std::uint8_t* out,
              int bytes) {
  constexpr int kBlock = 64;  // sums of one block stay in the first-level cache
  for (int x = 0; x < bytes; x += kBlock) {
    const int width = std::min(kBlock, bytes - x);
    std::int32_t sums[kBlock];
    std::fill(sums, sums + kBlock, kHalf);
    for (int j = 0; j < taps; ++j) {
      const std::uint8_t* row = rows + j * stride + x;
      for (int i = 0; i < width; ++i) sums[i] += row[i] * values[j];
    }
    for (int i = 0; i < width; ++i) out[x + i] = finished(sums[i]);
  }
}

}  // namespace

const ResizeKernels kScalarKernels = {"scalar", 1, nullptr, horizontal<3>, horizontal<4>, vertical};

}  // namespace fastpipe
