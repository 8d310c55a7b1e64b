// A row of a PNG as it is stored -> its samples.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastpipe {

constexpr int kMostFilter = 4;

// Whether a row with this filter needs the one above it.
inline bool looks_up(int filter) { return filter >= 2; }

// Undoes a row's filter, 0 to kMostFilter, in place. Source: PNG Specification, section 9.
//   above: the samples of the row above; zeros above the first row
//   step: bytes of a pixel, at least 1
void unfilter(int filter, std::uint8_t* row, const std::uint8_t* above, std::size_t bytes, std::size_t step);

}  // namespace fastpipe
