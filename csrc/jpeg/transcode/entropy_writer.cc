#include "jpeg/transcode/entropy_writer.h"

#include <cstring>

namespace fastpipe {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);

inline bool has_all_ones_byte(std::uint64_t word) {
  constexpr std::uint64_t kLows = 0x7F7F7F7F7F7F7F7F, kOnes = 0x0101010101010101;
  return (((word & kLows) + kOnes) & word & ~kLows) != 0;
}

// The first `bytes` bytes of a word, each 0xFF with the zero that tells it from a marker (T.81, F.1.2.3).
std::uint8_t* write_stuffed(std::uint64_t word, unsigned bytes, std::uint8_t* out) {
  for (; bytes > 0; --bytes, word <<= 8) {
    const auto byte = static_cast<std::uint8_t>(word >> 56);
    *out++ = byte;
    if (byte == 0xFF) *out++ = 0;
  }
  return out;
}

// Bits that do not fill a byte yet.
struct BitBuffer {
  std::uint64_t bits = 0;  // the last ones at the bottom
  unsigned count = 0;      // how many of them are not written
};

// Writes all whole bytes. `count` is 1 to 63.
inline std::uint8_t* flush(BitBuffer* buffer, std::uint8_t* out) {
  const std::uint64_t word = buffer->bits << (64 - buffer->count);
  const unsigned bytes = buffer->count >> 3;
  buffer->count &= 7;
  // A byte that is not whole yet has a zero at its end.
  if (__builtin_expect(static_cast<long>(has_all_ones_byte(word)), 0) != 0) return write_stuffed(word, bytes, out);
  const std::uint64_t big_endian = __builtin_bswap64(word);
  std::memcpy(out, &big_endian, kWord);
  return out + bytes;
}

}  // namespace

void EntropyWriter::set(unsigned pair, unsigned kind, const HuffmanCode& code) {
  std::uint32_t bits = 0;
  std::size_t at = 0;
  for (std::size_t length = 1; length < code.counts.size(); ++length, bits <<= 1) {
    for (int i = 0; i < code.counts[length]; ++i) {
      const unsigned symbol = code.symbols[at++];
      const unsigned behind = symbol & 15;
      codes_[symbol_index(pair, kind, symbol)] = {bits++ << behind, static_cast<std::uint32_t>(length) + behind};
    }
  }
}

std::size_t EntropyWriter::bound(const std::array<std::uint64_t, kSymbolIndexes>& counts, std::size_t intervals) const {
  std::uint64_t bits = 0;
  for (std::size_t index = 0; index < kSymbolIndexes; ++index) bits += counts[index] * codes_[index].length;
  constexpr std::size_t kMostPerInterval = 1 + 2;  // padding and a marker
  return 2 * static_cast<std::size_t>(bits / 8) + kMostPerInterval * intervals + 2 * kWord;
}

std::uint8_t* EntropyWriter::write(const Token* begin, const Token* end, std::uint8_t* out) const {
  BitBuffer buffer;
  const auto put = [this, &buffer](Token token) {
    const Code code = codes_[token >> 16];
    buffer.bits = buffer.bits << code.length | code.bits | (token & 0xFFFF);
    buffer.count += code.length;
  };
  // Two tokens take at most 2 * (16 + 11) bits, which fit behind the 7 that may be left.
  for (; end - begin >= 2; begin += 2) {
    put(begin[0]);
    put(begin[1]);
    out = flush(&buffer, out);
  }
  if (begin != end) {
    put(*begin);
    out = flush(&buffer, out);
  }
  if (buffer.count > 0) {
    const unsigned padding = 8 - buffer.count;
    buffer = {buffer.bits << padding | ((1u << padding) - 1), 8};
    out = flush(&buffer, out);
  }
  return out;
}

}  // namespace fastpipe
