// Ids -> a PNG that is quick to read.
#pragma once

#include <cstdint>
#include <vector>

#include "base/image.h"

namespace fastpipe {

// A gray PNG of 8 or 16 bits. Rows have no filter: masks get no smaller by any, and are read several times as fast.
//   ids: rows of `bits` / 8 bytes a pixel, of 16 bits the higher byte first, without gaps
// May throw only what allocation throws.
std::vector<std::uint8_t> write_mask_png(const std::uint8_t* ids, Size size, int bits);

}  // namespace fastpipe
