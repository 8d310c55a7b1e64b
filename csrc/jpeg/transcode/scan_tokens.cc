#include "jpeg/transcode/scan_tokens.h"

#include <algorithm>

#include "base/at_least.h"
#include "jpeg/unstuff.h"

namespace fastpipe {

namespace {

constexpr unsigned kLastPosition = 63;
constexpr std::size_t kUnstuffSlack = 32;

constexpr bool is_sixteen_zeros(Token token) {
  return (token >> 16) % (2 * kSymbolsPerTable) == symbol_index(0, kAc, kSixteenZeros);
}

constexpr bool is_end_of_block(Token token) {
  return (token >> 16) % (2 * kSymbolsPerTable) == symbol_index(0, kAc, kEndOfBlockSymbol);
}

// T.81, F.1.2.1, read backwards, without a branch: a sign is a coin's throw.
inline std::int16_t value_behind(std::uint64_t behind, unsigned bits) {
  const int value = static_cast<int>(behind), range = 1 << bits;
  return static_cast<std::int16_t>(value + (((value - (range >> 1)) >> 31) & (1 - range)));
}

}  // namespace

bool ScanTokens::AcLookup::build(const HuffmanSpec& spec, unsigned pair) {
  if (!codes.build(spec)) return false;
  entries.fill(kNoSymbol << 16 | kLongCode << 8);
  codes.each([this, pair](int code, int length, int symbol) {
    if (length > kLookupBits) return;
    const int run = symbol >> 4, behind = symbol & 15;
    Entry entry = kNoSymbol << 16 | kNone << 8;
    if (behind == 0 && run != 15) {
      entry = symbol_index(pair, kAc, kEndOfBlockSymbol) << 16 | kEndOfBlock << 8 | static_cast<Entry>(length);
    } else if (behind <= kMostAcBits) {
      entry = static_cast<Entry>(behind) << 26 | symbol_index(pair, kAc, static_cast<unsigned>(symbol)) << 16 |
              static_cast<Entry>(run + 1) << 8 | static_cast<Entry>(length + behind);
    }
    const int free_bits = kLookupBits - length;
    std::fill_n(entries.data() + (code << free_bits), 1 << free_bits, entry);
  });
  return true;
}

bool ScanTokens::build(const ParsedHeader& header, const OutputHeader& frame) {
  const ScanTables& tables = header.tables;
  blocks_.clear();
  for (std::size_t c = 0; c < frame.components; ++c) {
    for (int row = 0; row < frame.down(c); ++row) {
      for (int column = 0; column < frame.across(c); ++column) blocks_.push_back({c, column, row});
    }
    const std::size_t dc = tables.dc_of[c], ac = tables.ac_of[c];
    if (dc >= ScanTables::kMost || ac >= ScanTables::kMost) return false;
    if (tables.dc[dc].counts == nullptr || tables.ac[ac].counts == nullptr) return false;
    pairs_[c] = frame.component[c].pair;
    const bool as_before = c > 0 && pairs_[c] == pairs_[c - 1];
    if (as_before && dc == tables.dc_of[c - 1]) {
      dc_of_[c] = dc_of_[c - 1];
    } else {
      if (!dc_[c].build(tables.dc[dc])) return false;
      dc_of_[c] = &dc_[c];
    }
    if (as_before && ac == tables.ac_of[c - 1]) {
      ac_of_[c] = ac_of_[c - 1];
    } else {
      if (!ac_[c].build(tables.ac[ac], pairs_[c])) return false;
      ac_of_[c] = &ac_[c];
    }
  }
  return true;
}

bool ScanTokens::read(const ParsedHeader& header, const OutputHeader& frame, const std::uint8_t* data, std::size_t size,
                      TokenList* tokens) {
  const Size mcus = frame.mcus();
  const int count = mcus.width * mcus.height;
  const int interval = header.interval == 0 ? count : std::min(header.interval, count);
  const auto intervals = static_cast<std::size_t>(ceil_div(count, interval));
  const bool good = map_.find(data + header.bytes, size - header.bytes, intervals) && build(header, frame) &&
                    read_mcus(frame, interval, data + size, tokens);
  give_back_if_giant(&bytes_);
  return good;
}

bool ScanTokens::read_mcus(const OutputHeader& frame, int interval, const std::uint8_t* readable_end,
                           TokenList* tokens) {
  const Size mcus = frame.mcus();
  BitStream stream;
  std::size_t next = 0;                        // interval to open
  int unread = 0, unwritten = frame.interval;  // MCUs of the intervals at hand
  dc_written_ = {};
  for (int y = 0; y < mcus.height; ++y) {
    for (int x = 0; x < mcus.width; ++x) {
      if (unread == 0) {
        if (next > 0 && !stream.well_read(true)) return false;
        if (!open(next++, readable_end, &stream)) return false;
        dc_read_ = {};
        unread = interval;
      }
      if (unwritten == 0 && frame.interval > 0) {
        tokens->ends.push_back(tokens->count);
        dc_written_ = {};
        unwritten = frame.interval;
      }
      --unread;
      --unwritten;
      tokens->room(blocks_.size() * TokenList::kMostPerBlock);
      const bool edge = x == mcus.width - 1 || y == mcus.height - 1;
      for (const Block& block : blocks_) {
        const std::size_t c = block.component, first = tokens->count;
        const int dc_before = dc_written_[c];
        const std::size_t value_count = tokens->value_count;
        const bool good =
            tokens->with_values ? read_block<true>(&stream, c, tokens) : read_block<false>(&stream, c, tokens);
        if (!good) return false;
        if (!edge) continue;
        const Size real = frame.blocks(c);
        if (x * frame.across(c) + block.column < real.width && y * frame.down(c) + block.row < real.height) continue;
        make_dummy(first, c, tokens);
        tokens->value_count = value_count;
        if (tokens->with_values) tokens->blocks.pop_back();
        dc_written_[c] = dc_before;
      }
      if (stream.next > stream.end + sizeof stream.bits) return false;
    }
  }
  tokens->ends.push_back(tokens->count);
  tokens->counts[kNoSymbol] = 0;
  return stream.well_read(true);
}

bool ScanTokens::open(std::size_t interval, const std::uint8_t* readable_end, BitStream* stream) {
  const std::uint8_t *const begin = map_.begin(interval), *const end = map_.end(interval);
  const std::size_t needed = static_cast<std::size_t>(end - begin) + kUnstuffSlack + BitStream::kReadBeyond;
  std::uint8_t* const bytes = at_least(&bytes_, needed);
  *stream = {};
  stream->next = bytes;
  stream->end = best_unstuff()(begin, end, readable_end, bytes);
  return stream->end != nullptr;
}

template <bool kWithValues>
FASTPIPE_BMI2 bool ScanTokens::read_block(BitStream* at_stream, std::size_t component, TokenList* tokens) {
  BitStream stream = *at_stream;  // in registers
  const AcLookup& ac = *ac_of_[component];
  Token* out = tokens->memory.data() + tokens->count;

  if (!dc_of_[component]->read(stream, &dc_read_[component])) return false;
  const int value = dc_read_[component];
  const int difference = value - dc_written_[component], difference_bits = bits_of(difference);
  dc_written_[component] = value;
  if (difference_bits > kMostDcBits) return false;
  *out = token_of(symbol_index(pairs_[component], kDc, static_cast<unsigned>(difference_bits)), difference,
                  difference_bits);
  ++tokens->counts[*out++ >> 16];

  std::uint64_t mask = 0;
  std::int16_t* next_value = kWithValues ? tokens->values.data() + tokens->value_count : nullptr;

  unsigned at = 0;  // where in the zigzag the last coefficient lies
  while (true) {
    do {
      const Entry entry = ac.entries[stream.bits >> (64 - kLookupBits)];
      refill(stream);
      const std::uint64_t behind = stream.bits >> (-entry & 63) & ((1u << (entry >> 26)) - 1);
      *out++ = (entry & 0x03FF0000) | static_cast<Token>(behind);
      ++tokens->counts[entry >> 16 & 0x3FF];
      drop(stream, entry & 0xFF);
      at += entry >> 8 & 0xFF;
      if (kWithValues) {
        *next_value = value_behind(behind, entry >> 26);
        next_value += entry >> 26 != 0;
        mask |= std::uint64_t{entry >> 26 != 0} << ((at - 1) & 63);
      }
    } while (at < kLastPosition);
    if (at < kLongCode) break;
    if (at >= kNone) return false;

    at -= kLongCode;
    refill(stream);
    const auto found = ac.codes.find(stream.bits, kLookupBits + 1);
    const int run = found.symbol >> 4, behind = found.symbol & 15;
    if (found.length == 0 || behind > kMostAcBits) return false;
    const bool ends = behind == 0 && run != 15;
    const unsigned symbol = ends ? kEndOfBlockSymbol : static_cast<unsigned>(found.symbol);
    const std::uint64_t bits = stream.bits >> (64 - found.length - behind) & ((1u << behind) - 1);
    out[-1] = symbol_index(pairs_[component], kAc, symbol) << 16 | static_cast<Token>(bits);
    ++tokens->counts[out[-1] >> 16];
    drop(stream, static_cast<unsigned>(found.length + behind));
    at += ends ? kEndOfBlock : static_cast<unsigned>(run) + 1;
    if (kWithValues && behind != 0) {
      *next_value++ = value_behind(bits, static_cast<unsigned>(behind));
      mask |= std::uint64_t{1} << ((at - 1) & 63);
    }
    if (at >= kLastPosition) break;
  }
  // Zeros are not coded at the end of a block.
  const bool early = at >= kEndOfBlock && is_end_of_block(out[-1]);
  if ((at != kLastPosition && !early) || is_sixteen_zeros(out[early ? -2 : -1])) return false;
  tokens->count = static_cast<std::size_t>(out - tokens->memory.data());
  if (kWithValues) {
    tokens->value_count = static_cast<std::size_t>(next_value - tokens->values.data());
    tokens->blocks.push_back({mask, value});
  }
  *at_stream = stream;
  return true;
}

// Makes a block, the last one, into one that fills up an MCU at the edge of the picture: libjpeg-turbo makes it as
// bright as the block before, whatever the source has there.
void ScanTokens::make_dummy(std::size_t first, std::size_t component, TokenList* tokens) const {
  for (std::size_t i = first; i < tokens->count; ++i) --tokens->counts[tokens->memory[i] >> 16];
  tokens->count = first;
  tokens->add(symbol_index(pairs_[component], kDc, 0) << 16);
  tokens->add(symbol_index(pairs_[component], kAc, kEndOfBlockSymbol) << 16);
}

}  // namespace fastpipe
