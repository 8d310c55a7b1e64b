// KEY.tifs -> a damaged one.
#pragma once

#include <vector>

#include "layout.h"
#include "random.h"

namespace fuzz {

// A seed with one to three damages: to its header and tags, to the places of its tiles, or to the tiles themselves; or
// cut off.
Bytes make_tiled_input(Random* random, const std::vector<Bytes>& seeds);

}  // namespace fuzz
