// Entropy-coded bytes as a file has them -> without the zero that follows each 0xFF (ITU-T T.81, F.1.2.3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fastpipe {

// Writes at most end - begin bytes, and up to 32 more that mean nothing; returns where they end, or null where a 0xFF
// is followed by another byte. Reads nothing from `readable_end` on.
using Unstuff = std::uint8_t* (*)(const std::uint8_t* begin, const std::uint8_t* end, const std::uint8_t* readable_end,
                                  std::uint8_t* out);

std::uint8_t* unstuff_scalar(const std::uint8_t* begin, const std::uint8_t* end, const std::uint8_t* readable_end,
                             std::uint8_t* out);

// Each is null where this machine or this build lacks it.
Unstuff neon_unstuff();
Unstuff avx2_unstuff();

// All that this machine can run, the fastest last.
std::vector<Unstuff> all_unstuffs();

Unstuff best_unstuff();

}  // namespace fastpipe
