// The reference of the colour kernels.
#include <algorithm>

#include "jpeg/decode/color.h"

namespace fastpipe {
namespace {

std::uint8_t pixel(int value) { return static_cast<std::uint8_t>(std::clamp(value, 0, 255)); }

// round(x * multiplier / 2^16)
int scaled(int x, int multiplier) { return (x * multiplier + (1 << 15)) >> 16; }

void store_rgbx(int red, int green, int blue, std::uint8_t* to) {
  to[0] = pixel(red);
  to[1] = to[3] = pixel(green);
  to[2] = pixel(blue);
}

void twice_as_high(const std::uint8_t* near, const std::uint8_t* far, int bias, std::uint8_t* out, int count) {
  for (int i = 0; i < count; ++i) out[i] = static_cast<std::uint8_t>((3 * near[i] + far[i] + bias) >> 2);
}

void three_to_one(const std::uint8_t* near, const std::uint8_t* far, std::uint16_t* out, int count) {
  for (int i = 0; i < count; ++i) out[i] = static_cast<std::uint16_t>(3 * near[i] + far[i]);
}

void twice_as_wide(const std::uint8_t* in, std::uint8_t* out, int count) {
  for (int i = 0; i < count; ++i) {
    out[2 * i] = static_cast<std::uint8_t>((3 * in[i] + in[i - 1] + 1) >> 2);
    out[2 * i + 1] = static_cast<std::uint8_t>((3 * in[i] + in[i + 1] + 2) >> 2);
  }
}

void twice_as_wide_sums(const std::uint16_t* in, std::uint8_t* out, int count) {
  for (int i = 0; i < count; ++i) {
    out[2 * i] = static_cast<std::uint8_t>((3 * in[i] + in[i - 1] + 8) >> 4);
    out[2 * i + 1] = static_cast<std::uint8_t>((3 * in[i] + in[i + 1] + 7) >> 4);
  }
}

// 1.402, 1.772, 0.34414 and 0.71414 times 2^16.
void ycc_to_rgbx(const std::uint8_t* y, const std::uint8_t* cb, const std::uint8_t* cr, std::uint8_t* rgbx, int count) {
  for (int i = 0; i < count; ++i) {
    const int b = cb[i] - 128, r = cr[i] - 128;
    const int green = (-22554 * b - 46802 * r + (1 << 15)) >> 16;
    store_rgbx(y[i] + scaled(r, 91881), y[i] + green, y[i] + scaled(b, 116130), rgbx + 4 * i);
  }
}

void gray_to_rgbx(const std::uint8_t* y, std::uint8_t* rgbx, int count) {
  for (int i = 0; i < count; ++i) store_rgbx(y[i], y[i], y[i], rgbx + 4 * i);
}

}  // namespace

const ColorKernels kScalarColor = {"scalar",           twice_as_high, three_to_one, twice_as_wide,
                                   twice_as_wide_sums, ycc_to_rgbx,   gray_to_rgbx};

}  // namespace fastpipe
