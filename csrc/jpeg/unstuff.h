// Entropy-coded bytes as a file has them -> without the zero that follows each 0xFF (ITU-T T.81, F.1.2.3).
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastpipe {

// Writes at most end - begin bytes, and up to 32 more that mean nothing; returns where they end, or null where a 0xFF
// is followed by another byte. Reads nothing from `readable_end` on.
std::uint8_t* unstuff_avx2(const std::uint8_t* begin, const std::uint8_t* end, const std::uint8_t* readable_end,
                           std::uint8_t* out);

}  // namespace fastpipe
