#include "coefficients/block_kernels.h"

namespace fastpipe {

std::vector<const BlockKernels*> all_block_kernels() {
  std::vector<const BlockKernels*> all;
  for (const BlockKernels* kernels : {&kScalarBlocks, neon_blocks(), avx2_blocks(), avx512_blocks()}) {
    if (kernels != nullptr) all.push_back(kernels);
  }
  return all;
}

const BlockKernels* best_block_kernels() {
  static const BlockKernels* const best = all_block_kernels().back();
  return best;
}

bool add_exceptions(const std::uint8_t* at, unsigned length, std::int16_t* block) {
  const unsigned count = at[length - 1];
  const std::uint8_t* exception = at + length - 1 - 2 * count;
  for (unsigned i = 0; i < count; ++i, exception += 2) {
    const unsigned place = exception[0];
    if (place == 0 || place > 63) return false;
    std::int16_t* const value = block + place / 8 * 16 + place % 8;
    *value = static_cast<std::int16_t>(*value + static_cast<std::int8_t>(exception[1]) * 256);
  }
  return true;
}

}  // namespace fastpipe
