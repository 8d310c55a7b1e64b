#include "coefficients/block_kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include "coefficients/zigzag_tables.h"
#include "jpeg/decode/coefficient_rows.h"

namespace fastpipe {
namespace {

// All values in bytes, in the order of the zigzag, without zeros between them. Up to 32 more are written.
inline void unpack(const BlockParts& parts, std::uint8_t* values) {
  for (unsigned at = 0; at == 0 || at < parts.wide; at += 32) {
    vst1q_u8(values + at, vld1q_u8(parts.values + at));
    vst1q_u8(values + at + 16, vld1q_u8(parts.values + at + 16));
  }
  const uint8x16_t known = vreinterpretq_u8_s8(vld1q_s8(kSmallValues));
  for (unsigned at = parts.wide, from = parts.wide; at < parts.count; at += 32, from += 16) {
    const uint8x16_t halves = vld1q_u8(parts.values + from);
    const uint8x16_t low = vandq_u8(halves, vdupq_n_u8(15)), high = vshrq_n_u8(halves, 4);
    vst1q_u8(values + at, vqtbl1q_u8(known, vzip1q_u8(low, high)));
    vst1q_u8(values + at + 16, vqtbl1q_u8(known, vzip2q_u8(low, high)));
  }
}

// The next 8 places of the zigzag.
inline uint8x8_t spread(unsigned bits, const std::uint8_t** values) {
  const uint8x8_t next = vld1_u8(*values);
  *values += __builtin_popcount(bits);
  return vtbl1_u8(next, vld1_u8(kSpread.of[bits]));
}

inline void read_block(const BlockParts& parts, std::int16_t dc, std::int16_t* block) {
  std::uint8_t memory[160];  // 63 values where the block is good, and 63 bytes and 64 values where it is not
  unpack(parts, memory);
  const std::uint8_t* values = memory;
  std::uint64_t mask = parts.mask << 1;
  uint8x16x4_t zigzag;
  for (uint8x16_t& quarter : zigzag.val) {
    const uint8x8_t lower = spread(mask & 0xFF, &values), upper = spread(mask >> 8 & 0xFF, &values);
    quarter = vcombine_u8(lower, upper);
    mask >>= 16;
  }
  for (int i = 0; i < 4; ++i) {
    const uint8x16_t places = vld1q_u8(kRowsToZigzag.of + 16 * i);
    const int8x16_t rows = vreinterpretq_s8_u8(vqtbl4q_u8(zigzag, places));
    vst1q_s16(block + 32 * i, vmovl_s8(vget_low_s8(rows)));
    vst1q_s16(block + 32 * i + 16, vmovl_s8(vget_high_s8(rows)));
  }
  block[0] = dc;
}

bool read(const BlockRow& row, const std::uint8_t* at, int first, int count, const std::int16_t* dc,
          std::int16_t* pairs) {
  unsigned bad = 0;
  const CoefficientRows out = {pairs, 0};
  for (int i = 0; i < count; ++i) {
    const unsigned kind = row.kind(static_cast<unsigned>(first + i));
    const unsigned length = row.lengths[first + i];
    std::int16_t* const block = out.block(0, i);
    const BlockParts parts = take_apart(at, length, kind);
    read_block(parts, dc[i], block);
    bad |= parts.bad;
    if (__builtin_expect(kind > kMostMaskBytes && bad == 0, 0)) bad |= !add_exceptions(at, length, block);
    at += length;
  }
  if (count % 2 != 0) read_block({0, at, 0, 0, 0}, 0, out.block(0, count));
  return bad == 0;
}

constexpr BlockKernels kNeonBlocks = {"neon", read};

}  // namespace

const BlockKernels* neon_blocks() { return &kNeonBlocks; }

}  // namespace fastpipe

#else

namespace fastpipe {

const BlockKernels* neon_blocks() { return nullptr; }

}  // namespace fastpipe

#endif
