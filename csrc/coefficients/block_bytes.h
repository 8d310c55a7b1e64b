// The values of a block -> its bytes (Note [length of a block] in block_kernels.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fastpipe {

// 8 bytes of mask, 63 values, 2 bytes for each of these and their number.
constexpr std::size_t kMostBlockBytes = 8 + 63 + 2 * 63 + 1;
constexpr std::size_t kBlockWrittenBeyond = 64;  // behind the end of a block

// Writes a block's bytes and returns their end.
//   mask: bit i - 1: coefficient i of the zigzag order is not 0
//   values: those; TokenList::kValuesBeyond more are readable
//   kind: what the row says of the block
using BlockBytesWriter = std::uint8_t* (*)(std::uint64_t mask, const std::int16_t* values, unsigned* kind,
                                           std::uint8_t* out);

std::uint8_t* write_block_scalar(std::uint64_t mask, const std::int16_t* values, unsigned* kind, std::uint8_t* out);

// Each is null where this machine lacks the instructions.
BlockBytesWriter neon_block_bytes_writer();
BlockBytesWriter avx2_block_bytes_writer();
BlockBytesWriter avx512_block_bytes_writer();

// All that this machine can run, the fastest last.
std::vector<BlockBytesWriter> all_block_bytes_writers();

BlockBytesWriter best_block_bytes_writer();

// For the writers: writes the mask; returns the end of it.
std::uint8_t* begin_block(std::uint64_t mask, bool exceptions, unsigned* kind, std::uint8_t* out);

// For the writers: writes what does not fit 8 bits.
std::uint8_t* write_exceptions(std::uint64_t mask, const std::int16_t* values, std::uint8_t* out);

}  // namespace fastpipe
