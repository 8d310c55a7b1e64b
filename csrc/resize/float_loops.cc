#include "resize/float_loops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/x86.h"

#define FASTPIPE_INLINED __attribute__((always_inline))
#define FASTPIPE_INLINE FASTPIPE_INLINED inline

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
  if (channels == 4) return across_all<4>(line, axis, outputs, out);
  for (int i = 0; i < outputs; ++i, out += channels) {
    const FloatTaps taps = axis.taps(i);
    weigh<0>(line + static_cast<std::ptrdiff_t>(taps.first) * channels, channels, taps, channels, out);
  }
}

// Calls `take` with each block of sums: where it begins, how many, and the sums.
template <typename Take>
FASTPIPE_INLINE void down_blocks(const float* rows, std::ptrdiff_t stride, const FloatTaps& taps, int count,
                                 const Take& take) {
  float sums[kBlock];
  for (int x = 0; x < count; x += kBlock) {
    const int width = std::min(kBlock, count - x);
    if (width == kBlock) {
      weigh<kBlock>(rows + x, stride, taps, kBlock, sums);
    } else {
      weigh<0>(rows + x, stride, taps, width, sums);
    }
    take(x, width, sums);
  }
}

FASTPIPE_INLINE void down_row(const float* rows, std::ptrdiff_t stride, const FloatTaps& taps, int count, float* out) {
  down_blocks(rows, stride, taps, count, [out](int x, int width, const float* sums) FASTPIPE_INLINED {
    std::memcpy(out + x, sums, static_cast<std::size_t>(width) * sizeof *sums);
  });
}

FASTPIPE_INLINE void down_row_rounded(const float* rows, std::ptrdiff_t stride, const FloatTaps& taps, int count,
                                      std::uint16_t* out) {
  static constexpr float kMost = 65535;
  down_blocks(rows, stride, taps, count, [out](int x, int width, const float* sums) FASTPIPE_INLINED {
    for (int i = 0; i < width; ++i) {
      out[x + i] = static_cast<std::uint16_t>(std::min(std::max(__builtin_rintf(sums[i]), 0.0F), kMost));
    }
  });
}

// Without an instruction for it, a fused addition is a call; what comes of it is the same.
void across_plain(const float* line, int channels, const FloatAxis& axis, int outputs, float* out) {
  across_row(line, channels, axis, outputs, out);
}

void down_plain(const float* rows, std::ptrdiff_t stride, const FloatTaps& taps, int count, float* out) {
  down_row(rows, stride, taps, count, out);
}

void down_rounded_plain(const float* rows, std::ptrdiff_t stride, const FloatTaps& taps, int count,
                        std::uint16_t* out) {
  down_row_rounded(rows, stride, taps, count, out);
}

#if defined(__x86_64__)
#define FASTPIPE_FMA __attribute__((target("avx2,fma")))

FASTPIPE_FMA void across_fused(const float* line, int channels, const FloatAxis& axis, int outputs, float* out) {
  across_row(line, channels, axis, outputs, out);
}

FASTPIPE_FMA void down_fused(const float* rows, std::ptrdiff_t stride, const FloatTaps& taps, int count, float* out) {
  down_row(rows, stride, taps, count, out);
}

FASTPIPE_FMA void down_rounded_fused(const float* rows, std::ptrdiff_t stride, const FloatTaps& taps, int count,
                                     std::uint16_t* out) {
  down_row_rounded(rows, stride, taps, count, out);
}

bool can_fuse() { return has_avx2() && __builtin_cpu_supports("fma"); }
#endif

}  // namespace

const FloatLoops& float_loops() {
  static constexpr FloatLoops plain = {across_plain, down_plain, down_rounded_plain};
#if defined(__x86_64__)
  static constexpr FloatLoops fused = {across_fused, down_fused, down_rounded_fused};
  static const bool fuses = can_fuse();
  if (fuses) return fused;
#endif
  return plain;
}

}  // namespace fastpipe
