#include "jpeg/transcode/block_tokens.h"

#include "jpeg/zigzag.h"

namespace fastpipe {

void BlockTokens::begin_mcu(std::size_t blocks) {
  if (interval_ > 0 && mcu_ == interval_) {
    end();
    dc_ = {};
    mcu_ = 0;
  }
  ++mcu_;
  tokens_->room(blocks * TokenList::kMostPerBlock);
}

bool BlockTokens::add(const std::int16_t* block, std::size_t component, unsigned pair) {
  const int difference = block[0] - dc_[component];
  dc_[component] = block[0];
  const int dc_bits = bits_of(difference);
  if (dc_bits > kMostDcBits) return false;
  tokens_->add(token_of(symbol_index(pair, kDc, static_cast<unsigned>(dc_bits)), difference, dc_bits));

  std::uint64_t nonzero = 0;  // in zigzag order
  for (std::size_t at = 1; at < 64; ++at) nonzero |= std::uint64_t{block[kZigzagToRows[at]] != 0} << at;
  const bool ends_early = nonzero >> 63 == 0;
  if (tokens_->with_values) tokens_->blocks.push_back({nonzero >> 1, block[0]});
  unsigned last = 0;
  for (; nonzero != 0; nonzero &= nonzero - 1) {
    const auto at = static_cast<unsigned>(__builtin_ctzll(nonzero));
    unsigned run = at - last - 1;
    last = at;
    for (; run > 15; run -= 16) tokens_->add(symbol_index(pair, kAc, kSixteenZeros) << 16);
    const int value = block[kZigzagToRows[at]], bits = bits_of(value);
    if (bits > kMostAcBits) return false;
    tokens_->add(token_of(symbol_index(pair, kAc, run << 4 | static_cast<unsigned>(bits)), value, bits));
    if (tokens_->with_values) tokens_->values[tokens_->value_count++] = block[kZigzagToRows[at]];
  }
  if (ends_early) tokens_->add(symbol_index(pair, kAc, kEndOfBlockSymbol) << 16);
  return true;
}

void BlockTokens::add_dummy(unsigned pair) {
  tokens_->add(symbol_index(pair, kDc, 0) << 16);
  tokens_->add(symbol_index(pair, kAc, kEndOfBlockSymbol) << 16);
}

}  // namespace fastpipe
