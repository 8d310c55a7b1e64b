#include "coefficients/block_row_writer.h"

#include <cstdint>
#include <cstring>

#include "base/at_least.h"
#include "coefficients/block_bytes.h"

namespace fastpipe {
void BlockRowWriter::begin(int blocks) {
  blocks_.resize(static_cast<std::size_t>(blocks));
  next_ = 0;
}

// Returns how many upper bytes there are.
std::size_t BlockRowWriter::write_dc(std::uint8_t* low, std::uint8_t* wide, std::uint8_t* high) const {
  std::int16_t last = 0;
  std::size_t highs = 0;
  std::memset(wide, 0, (blocks_.size() + 7) / 8);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const auto difference = static_cast<std::int16_t>(blocks_[i].record.dc - last);
    last = static_cast<std::int16_t>(blocks_[i].record.dc);
    const auto lower = static_cast<std::int8_t>(difference);
    low[i] = static_cast<std::uint8_t>(lower);
    if (difference == lower) continue;
    wide[i / 8] |= static_cast<std::uint8_t>(1 << i % 8);
    high[highs++] = static_cast<std::uint8_t>((difference - lower) / 256);
  }
  return highs;
}

void BlockRowWriter::append_to(std::vector<std::uint8_t>* bytes) {
  const std::size_t n = blocks_.size();
  const std::size_t most = (3 + kMostBlockBytes) * n + n / 2 + n / 8 + 2 + kBlockWrittenBeyond;
  std::uint8_t* const lengths = at_least(&memory_, most);
  std::uint8_t* const kinds = lengths + n;
  std::uint8_t* const low = kinds + (n + 1) / 2;
  std::uint8_t* const wide = low + n;
  std::uint8_t* const high = wide + (n + 7) / 8;
  std::uint8_t* out = high + write_dc(low, wide, high);
  std::memset(kinds, 0, (n + 1) / 2);
  const BlockBytesWriter write = best_block_bytes_writer();
  for (std::size_t i = 0; i < n; ++i) {
    unsigned kind;
    std::uint8_t* const end = write(blocks_[i].record.mask, blocks_[i].values, &kind, out);
    kinds[i / 2] |= static_cast<std::uint8_t>(kind << i % 2 * 4);
    lengths[i] = static_cast<std::uint8_t>(end - out);
    out = end;
  }
  bytes->insert(bytes->end(), lengths, out);
}

}  // namespace fastpipe
