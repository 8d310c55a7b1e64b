// PNGs -> a damaged one.
#pragma once

#include <vector>

#include "base/image.h"
#include "layout.h"
#include "random.h"

namespace fuzz {

// A seed with one to three damages: to its chunks, their order, its header, its compressed bytes, or the rows in them.
// Most have checksums that are right, so that the damage is met further in.
Bytes make_png_input(Random* random, const std::vector<Bytes>& seeds);

// The size in the header; 16 x 16 where there is none.
fastpipe::Size png_size_of(const Bytes& png);

}  // namespace fuzz
