// Bytes -> their XXH3-64 with seed 0, the hash that the index has of every JPEG.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastpipe {

// Source: "XXH3 Algorithm Specification", in the xxHash project's doc/xxhash_spec.md.
std::uint64_t xxh3_64(const std::uint8_t* data, std::size_t size);

// The same in portable code alone: the reference for machines that have something quicker.
std::uint64_t xxh3_64_scalar(const std::uint8_t* data, std::size_t size);

}  // namespace fastpipe
