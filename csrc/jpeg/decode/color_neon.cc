#include "jpeg/decode/color.h"

#if defined(__aarch64__)
#include <arm_neon.h>

namespace fastpipe {
namespace {

constexpr int kStep = 16;

// 3 near + far + more, of 16 bytes.
struct Sums {
  uint16x8_t low, high;

  Sums(uint8x16_t near, uint8x16_t far, uint16x8_t more)
      : low(vmlal_u8(vaddw_u8(more, vget_low_u8(far)), vget_low_u8(near), vdup_n_u8(3))),
        high(vmlal_u8(vaddw_u8(more, vget_high_u8(far)), vget_high_u8(near), vdup_n_u8(3))) {}

  template <int kShift>
  uint8x16_t shifted() const {
    return vshrn_high_n_u16(vshrn_n_u16(low, kShift), high, kShift);
  }
};

void twice_as_high(const std::uint8_t* near, const std::uint8_t* far, int bias, std::uint8_t* out, int count) {
  const uint16x8_t add = vdupq_n_u16(static_cast<std::uint16_t>(bias));
  for (int i = 0; i < count; i += kStep) {
    vst1q_u8(out + i, Sums(vld1q_u8(near + i), vld1q_u8(far + i), add).shifted<2>());
  }
}

void three_to_one(const std::uint8_t* near, const std::uint8_t* far, std::uint16_t* out, int count) {
  for (int i = 0; i < count; i += kStep) {
    const Sums sums(vld1q_u8(near + i), vld1q_u8(far + i), vdupq_n_u16(0));
    vst1q_u16(out + i, sums.low);
    vst1q_u16(out + i + 8, sums.high);
  }
}

void twice_as_wide(const std::uint8_t* in, std::uint8_t* out, int count) {
  for (int i = 0; i < count; i += kStep) {
    const uint8x16_t near = vld1q_u8(in + i);
    const Sums even(near, vld1q_u8(in + i - 1), vdupq_n_u16(1)), odd(near, vld1q_u8(in + i + 1), vdupq_n_u16(2));
    vst2q_u8(out + 2 * i, {{even.shifted<2>(), odd.shifted<2>()}});
  }
}

void twice_as_wide_sums(const std::uint16_t* in, std::uint8_t* out, int count) {
  for (int i = 0; i < count; i += 8) {
    const uint16x8_t near = vld1q_u16(in + i);
    const uint16x8_t even = vmlaq_n_u16(vld1q_u16(in + i - 1), near, 3);
    const uint16x8_t odd = vmlaq_n_u16(vaddq_u16(vld1q_u16(in + i + 1), vdupq_n_u16(7)), near, 3);
    vst2_u8(out + 2 * i, {{vrshrn_n_u16(even, 4), vshrn_n_u16(odd, 4)}});
  }
}

// The parts of the multipliers are those of color_avx2.cc.
struct Pixels {
  uint8x8_t red, green, blue;

  Pixels(uint8x8_t y, uint8x8_t cb, uint8x8_t cr) {
    const int16x8_t light = vreinterpretq_s16_u16(vmovl_u8(y));
    const int16x8_t b = vreinterpretq_s16_u16(vsubl_u8(cb, vdup_n_u8(128)));
    const int16x8_t r = vreinterpretq_s16_u16(vsubl_u8(cr, vdup_n_u8(128)));
    red = vqmovun_s16(vaddq_s16(vaddq_s16(light, r), vrshrq_n_s16(vqdmulhq_n_s16(r, 26345), 1)));
    blue = vqmovun_s16(vaddq_s16(vaddq_s16(light, vaddq_s16(b, b)), vrshrq_n_s16(vqdmulhq_n_s16(b, -14942), 1)));
    const int32x4_t low = vmlal_n_s16(vmull_n_s16(vget_low_s16(b), -22554), vget_low_s16(r), 18734);
    const int32x4_t high = vmlal_high_n_s16(vmull_high_n_s16(b, -22554), r, 18734);
    const int16x8_t mixed = vrshrn_high_n_s32(vrshrn_n_s32(low, 16), high, 16);
    green = vqmovun_s16(vaddq_s16(vsubq_s16(light, r), mixed));
  }
};

void ycc_to_rgbx(const std::uint8_t* y, const std::uint8_t* cb, const std::uint8_t* cr, std::uint8_t* rgbx, int count) {
  for (int i = 0; i < count; i += kStep) {
    const uint8x16_t light = vld1q_u8(y + i), b = vld1q_u8(cb + i), r = vld1q_u8(cr + i);
    const Pixels low(vget_low_u8(light), vget_low_u8(b), vget_low_u8(r));
    const Pixels high(vget_high_u8(light), vget_high_u8(b), vget_high_u8(r));
    const uint8x16_t green = vcombine_u8(low.green, high.green);
    vst4q_u8(rgbx + 4 * i, {{vcombine_u8(low.red, high.red), green, vcombine_u8(low.blue, high.blue), green}});
  }
}

void gray_to_rgbx(const std::uint8_t* y, std::uint8_t* rgbx, int count) {
  for (int i = 0; i < count; i += kStep) {
    const uint8x16_t light = vld1q_u8(y + i);
    vst4q_u8(rgbx + 4 * i, {{light, light, light, light}});
  }
}

constexpr ColorKernels kKernels = {"neon",      twice_as_high, three_to_one, twice_as_wide, twice_as_wide_sums,
                                   ycc_to_rgbx, gray_to_rgbx};

}  // namespace

const ColorKernels* neon_color() { return &kKernels; }

}  // namespace fastpipe

#else

namespace fastpipe {

const ColorKernels* neon_color() { return nullptr; }

}  // namespace fastpipe

#endif
