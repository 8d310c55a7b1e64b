#include "jpeg/unstuff.h"

namespace fastpipe {

std::uint8_t* unstuff_scalar(const std::uint8_t* begin, const std::uint8_t* end, const std::uint8_t*,
                             std::uint8_t* out) {
  for (const std::uint8_t* at = begin; at < end;) {
    *out++ = *at;
    if (*at++ != 0xFF) continue;
    if (at == end || *at++ != 0) return nullptr;
  }
  return out;
}

std::vector<Unstuff> all_unstuffs() {
  std::vector<Unstuff> all;
  for (const Unstuff unstuff : {unstuff_scalar, neon_unstuff(), avx2_unstuff()}) {
    if (unstuff != nullptr) all.push_back(unstuff);
  }
  return all;
}

Unstuff best_unstuff() {
  static const Unstuff best = all_unstuffs().back();
  return best;
}

}  // namespace fastpipe
