// Sizes of samples -> the batches of a budget that they fill.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastpipe {

// Note [best fit]
// Samples are taken one after the other, and each goes to the fullest batch in which it has room; to a new one if it
// has none. Large samples, which fill an eighth of a batch and more, are taken first, the largest first: smaller ones
// then fill the gaps that they leave. All others are taken in their own order, so that batches mix them as it does.

// Writes for each of `count` samples the number of its batch, from 0 on, and returns how many batches there are.
// `sizes` are from 1 to `budget`; a batch has at most `most` samples. May throw only what allocation throws.
std::int64_t fill_batches(const std::int64_t* sizes, std::size_t count, std::int64_t budget, std::int64_t most,
                          std::int64_t* batches);

}  // namespace fastpipe
