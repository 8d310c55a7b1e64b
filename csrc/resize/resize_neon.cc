// The resize's inner loops for ARM's 64-bit processors, all of which have NEON.
#include "resize/resize_kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include <cstring>

namespace fastpipe {
namespace {

constexpr int kTapGroup = 4;  // weights that one register holds

// Adds the products of four bytes, widened to 16 bits each, by one weight.
template <int kTap>
inline int32x4_t add(int32x4_t sums, uint16x4_t four, int32x4_t weights) {
  return vmlaq_laneq_s32(sums, vreinterpretq_s32_u32(vmovl_u16(four)), weights, kTap);
}

// The sum of one output pixel.
inline int32x4_t pixel_across(const std::uint8_t* in, const std::int32_t* values, int taps) {
  int32x4_t sums = vdupq_n_s32(kHalf);
  for (int j = 0; j < taps; j += kTapGroup) {
    const uint8x16_t pixels = vld1q_u8(in + 4 * j);
    const uint16x8_t left = vmovl_u8(vget_low_u8(pixels)), right = vmovl_u8(vget_high_u8(pixels));
    const int32x4_t weights = vld1q_s32(values + j);
    sums = add<0>(sums, vget_low_u16(left), weights);
    sums = add<1>(sums, vget_high_u16(left), weights);
    sums = add<2>(sums, vget_low_u16(right), weights);
    sums = add<3>(sums, vget_high_u16(right), weights);
  }
  return sums;
}

// Shifted and clipped to bytes; the first shift leaves what surely fits 16 bits.
inline uint8x8_t finished(int32x4_t left, int32x4_t right) {
  constexpr int kFirstShift = 16;
  const int16x8_t both = vcombine_s16(vshrn_n_s32(left, kFirstShift), vshrn_n_s32(right, kFirstShift));
  return vqshrun_n_s16(both, kWeightBits - kFirstShift);
}

template <int kChannels>
void horizontal(const std::uint8_t* rgbx, std::ptrdiff_t rgbx_stride, int count, std::uint8_t* rgb,
                std::ptrdiff_t rgb_stride, const Weights& weights) {
  const std::uint8_t places[16] = {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 255, 255, 255, 255};
  const uint8x16_t drop_x = vld1q_u8(places);
  for (; count > 0; --count, rgbx += rgbx_stride, rgb += rgb_stride) {
    for (int i = 0; i < weights.outputs; i += kOutputGroup) {
      int32x4_t sums[kOutputGroup];
      for (int k = 0; k < kOutputGroup; ++k) {
        const std::uint8_t* const in = rgbx + static_cast<std::ptrdiff_t>(weights.first[i + k]) * 4;
        sums[k] = pixel_across(in, weights.of(i + k), weights.taps);
      }
      const uint8x16_t pixels = vcombine_u8(finished(sums[0], sums[1]), finished(sums[2], sums[3]));
      vst1q_u8(rgb + kChannels * i, kChannels == 3 ? vqtbl1q_u8(pixels, drop_x) : pixels);
    }
  }
}

constexpr int kBlock = 16;

inline uint8x16_t block_down(const std::uint8_t* rows, std::ptrdiff_t stride, const std::int32_t* values, int taps) {
  int32x4_t sums[4] = {vdupq_n_s32(kHalf), vdupq_n_s32(kHalf), vdupq_n_s32(kHalf), vdupq_n_s32(kHalf)};
  for (int j = 0; j < taps; ++j, rows += stride) {
    const uint8x16_t bytes = vld1q_u8(rows);
    const uint16x8_t left = vmovl_u8(vget_low_u8(bytes)), right = vmovl_u8(vget_high_u8(bytes));
    const int32x4_t weight = vld1q_dup_s32(values + j);
    sums[0] = add<0>(sums[0], vget_low_u16(left), weight);
    sums[1] = add<0>(sums[1], vget_high_u16(left), weight);
    sums[2] = add<0>(sums[2], vget_low_u16(right), weight);
    sums[3] = add<0>(sums[3], vget_high_u16(right), weight);
  }
  return vcombine_u8(finished(sums[0], sums[1]), finished(sums[2], sums[3]));
}

void vertical(const std::uint8_t* rows, std::ptrdiff_t stride, const std::int32_t* values, int taps, std::uint8_t* out,
              int bytes) {
  int x = 0;
  for (; x + kBlock <= bytes; x += kBlock) vst1q_u8(out + x, block_down(rows + x, stride, values, taps));
  if (x == bytes) return;
  std::uint8_t last[kBlock];
  vst1q_u8(last, block_down(rows + x, stride, values, taps));
  std::memcpy(out + x, last, static_cast<std::size_t>(bytes - x));
}

// NEON multiplies and adds 32-bit numbers: weights stay as they are.
constexpr ResizeKernels kKernels = {"neon", kTapGroup, nullptr, horizontal<3>, horizontal<4>, vertical};

}  // namespace

const ResizeKernels* neon_kernels() { return &kKernels; }

}  // namespace fastpipe

#else

namespace fastpipe {

const ResizeKernels* neon_kernels() { return nullptr; }

}  // namespace fastpipe

#endif
