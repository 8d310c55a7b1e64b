#include "jpeg/unstuff.h"

#if defined(__aarch64__)
#include <arm_neon.h>

namespace fastpipe {
namespace {

std::uint8_t* unstuff(const std::uint8_t* begin, const std::uint8_t* end, const std::uint8_t* readable_end,
                      std::uint8_t* out) {
  constexpr std::ptrdiff_t kStep = 16;
  const std::uint8_t* at = begin;
  while (at < end && readable_end - at >= kStep) {
    const uint8x16_t bytes = vld1q_u8(at);
    vst1q_u8(out, bytes);
    // Four bits a byte.
    const uint8x8_t nibbles = vshrn_n_u16(vreinterpretq_u16_u8(vceqq_u8(bytes, vdupq_n_u8(0xFF))), 4);
    const std::uint64_t found = vget_lane_u64(vreinterpret_u64_u8(nibbles), 0);
    const std::ptrdiff_t plain = found == 0 ? kStep : __builtin_ctzll(found) / 4;
    if (end - at <= plain) return out + (end - at);
    at += plain;
    out += plain;
    if (found == 0) continue;
    if (end - at < 2 || at[1] != 0) return nullptr;
    ++out;
    at += 2;
  }
  return unstuff_scalar(at, end, readable_end, out);
}

}  // namespace

Unstuff neon_unstuff() { return unstuff; }

}  // namespace fastpipe

#else

namespace fastpipe {

Unstuff neon_unstuff() { return nullptr; }

}  // namespace fastpipe

#endif
