// KEY.fpcs -> a damaged one.
#pragma once

#include <vector>

#include "base/image.h"
#include "layout.h"
#include "random.h"

namespace fuzz {

// A seed with one to four damages: to its header, the places of its rows, the lengths and kinds of its blocks, their
// bytes, or its end.
Bytes make_fpc_input(Random* random, const std::vector<Bytes>& seeds);

// The size in the header; 16 x 16 where there is none.
fastpipe::Size fpc_size_of(const Bytes& fpc);

}  // namespace fuzz
