#include "coefficients/block_bytes.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include "coefficients/block_row.h"

namespace fastpipe {
namespace {

constexpr unsigned kStep = 16;

inline int8x16_t bytes_of(const std::int16_t* values) {
  return vmovn_high_s16(vmovn_s16(vld1q_s16(values)), vld1q_s16(values + 8));
}

// Four bits for each of 16 masks.
inline std::uint64_t bits(uint16x8_t first, uint16x8_t second) {
  const uint8x16_t both = vmovn_high_u16(vmovn_u16(first), second);
  return vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(both), 4)), 0);
}

inline uint16x8_t beyond(int16x8_t values) {
  return vcgtq_u16(vreinterpretq_u16_s16(vabsq_s16(values)), vdupq_n_u16(kMostSmall));
}

// Which of kSmallValues each is. Those above 0 are one place lower: there is no 0 among them.
inline uint8x16_t small(int8x16_t values) {
  const int8x16_t above = vreinterpretq_s8_u8(vcgtq_s8(values, vdupq_n_s8(0)));
  const int8x16_t places = vaddq_s8(vaddq_s8(values, vdupq_n_s8(kMostSmall)), above);
  return vandq_u8(vreinterpretq_u8_s8(places), vdupq_n_u8(15));
}

std::uint8_t* write_block(std::uint64_t mask, const std::int16_t* values, unsigned* kind, std::uint8_t* out) {
  const auto count = static_cast<unsigned>(__builtin_popcountll(mask));
  unsigned wide = 0;
  std::uint64_t exceptions = 0;
  for (unsigned i = 0; i < count; i += kStep) {
    const int16x8_t first = vld1q_s16(values + i), second = vld1q_s16(values + i + 8);
    const std::uint64_t ours = count - i < kStep ? (1ull << 4 * (count - i)) - 1 : ~0ull;
    const std::uint64_t is_wide = ours & bits(beyond(first), beyond(second));
    if (is_wide != 0) wide = i + kStep - static_cast<unsigned>(__builtin_clzll(is_wide)) / 4;
    exceptions |=
        ours & ~bits(vceqq_s16(first, vmovl_s8(vmovn_s16(first))), vceqq_s16(second, vmovl_s8(vmovn_s16(second))));
  }
  wide += (count - wide) % 2;

  out = begin_block(mask, exceptions != 0, kind, out);
  for (unsigned i = 0; i < wide; i += kStep) vst1q_s8(reinterpret_cast<std::int8_t*>(out + i), bytes_of(values + i));
  out += wide;
  for (unsigned i = wide; i < count; i += kStep) {
    const uint16x8_t halves = vreinterpretq_u16_u8(small(bytes_of(values + i)));
    vst1_u8(out + (i - wide) / 2, vmovn_u16(vsraq_n_u16(halves, halves, 4)));
  }
  out += (count - wide) / 2;
  return exceptions == 0 ? out : write_exceptions(mask, values, out);
}

}  // namespace

BlockBytesWriter neon_block_bytes_writer() { return write_block; }

}  // namespace fastpipe

#else

namespace fastpipe {

BlockBytesWriter neon_block_bytes_writer() { return nullptr; }

}  // namespace fastpipe

#endif
