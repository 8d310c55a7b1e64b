// A JPEG's bytes -> how many scans it has.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastpipe {

// Counts the scans from the first one on, whose entropy-coded bytes begin at `data`, without decoding anything. Stops
// at `most` + 1: the answer comes at once, however long the file is.
int count_scans(const std::uint8_t* data, std::size_t size, int most);

}  // namespace fastpipe
