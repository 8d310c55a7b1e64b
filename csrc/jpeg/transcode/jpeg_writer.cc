#include "jpeg/transcode/jpeg_writer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/at_least.h"
#include "jpeg/markers.h"
#include "jpeg/transcode/entropy_writer.h"
#include "jpeg/transcode/optimal_huffman.h"
#include "jpeg/zigzag.h"

namespace fastpipe {
namespace {

class SegmentWriter {
 public:
  explicit SegmentWriter(std::uint8_t* out) : out_(out) {}

  void byte(int value) { *out_++ = static_cast<std::uint8_t>(value); }
  void word(int value) {
    byte(value >> 8);
    byte(value & 0xFF);
  }
  void marker(int code) {
    byte(0xFF);
    byte(code);
  }
  void bytes(const void* data, std::size_t size) {
    if (size == 0) return;
    std::memcpy(out_, data, size);
    out_ += size;
  }
  // Marker and length of a segment with `size` bytes in it.
  void begin(int code, std::size_t size) {
    marker(code);
    word(static_cast<int>(size) + 2);
  }

  void jfif(const Jfif& jfif) {
    constexpr int kMajorVersion = 1;
    begin(marker::kJfif, 14);
    bytes("JFIF", 5);
    byte(kMajorVersion);
    byte(jfif.minor_version);
    byte(jfif.density_unit);
    word(jfif.x_density);
    word(jfif.y_density);
    word(0);  // no thumbnail
  }

  void adobe_rgb() {
    constexpr int kVersion = 100, kNoTransform = 0;
    begin(marker::kAdobe, 12);
    bytes("Adobe", 5);
    word(kVersion);
    word(0);
    word(0);
    byte(kNoTransform);
  }

  void quant_table(std::size_t number, const std::array<std::uint16_t, 64>& steps, bool wide) {
    begin(marker::kQuantTables, wide ? 129 : 65);
    byte(static_cast<int>(number) + (wide ? 0x10 : 0));
    for (const std::size_t at : kZigzagToRows) {
      if (wide) byte(steps[at] >> 8);
      byte(steps[at] & 0xFF);
    }
  }

  void frame(const OutputHeader& header, bool wide_steps) {
    begin(wide_steps ? marker::kExtendedFrame : marker::kBaselineFrame, 6 + 3 * header.components);
    byte(8);  // bits a sample
    word(header.size.height);
    word(header.size.width);
    byte(static_cast<int>(header.components));
    for (std::size_t c = 0; c < header.components; ++c) {
      const OutputHeader::Component& component = header.component[c];
      byte(component.id);
      byte(component.across << 4 | component.down);
      byte(static_cast<int>(component.quant));
    }
  }

  void huffman_table(unsigned pair, unsigned kind, const HuffmanCode& code) {
    const auto symbols = static_cast<std::size_t>(code.size);
    begin(marker::kHuffmanTables, code.counts.size() + symbols);
    byte(static_cast<int>(kind << 4 | pair));
    bytes(code.counts.data() + 1, code.counts.size() - 1);
    bytes(code.symbols.data(), symbols);
  }

  void restart_interval(int mcus) {
    begin(marker::kRestartInterval, 2);
    word(mcus);
  }

  void scan(const OutputHeader& header) {
    begin(marker::kScan, 4 + 2 * header.components);
    byte(static_cast<int>(header.components));
    for (std::size_t c = 0; c < header.components; ++c) {
      const auto pair = static_cast<int>(header.component[c].pair);
      byte(header.component[c].id);
      byte(pair << 4 | pair);
    }
    byte(0);  // all coefficients
    byte(63);
    byte(0);
  }

  std::uint8_t* end() const { return out_; }

 private:
  std::uint8_t* out_;
};

// Bytes that all but the given segments and the entropy-coded bytes take at most.
constexpr std::size_t kMostHeaderBytes = 2048;

bool is_wide(const std::array<std::uint16_t, 64>& steps) {
  return std::any_of(steps.begin(), steps.end(), [](std::uint16_t step) { return step > 0xFF; });
}

}  // namespace

void JpegWriter::write(const OutputHeader& header, const std::vector<Segment>& segments, const TokenList& tokens) {
  unsigned pairs = 0;
  for (std::size_t c = 0; c < header.components; ++c) pairs = std::max(pairs, header.component[c].pair + 1);
  std::array<std::array<HuffmanCode, 2>, kTablePairs> codes;
  EntropyWriter entropy;
  for (unsigned pair = 0; pair < pairs; ++pair) {
    for (const unsigned kind : {kDc, kAc}) {
      codes[pair][kind] = optimal_code(tokens.counts.data() + symbol_index(pair, kind, 0));
      entropy.set(pair, kind, codes[pair][kind]);
    }
  }
  std::size_t bound = kMostHeaderBytes + entropy.bound(tokens.counts, tokens.ends.size());
  for (const Segment& segment : segments) bound += segment.size + 4;

  SegmentWriter out(at_least(&bytes_, bound));
  out.marker(marker::kStart);
  if (header.rgb) {
    out.adobe_rgb();
  } else {
    out.jfif(header.jfif);
  }
  for (const Segment& segment : segments) {
    out.begin(segment.marker, segment.size);
    out.bytes(segment.data, segment.size);
  }
  bool wide_steps = false;
  unsigned written = 0;
  for (std::size_t c = 0; c < header.components; ++c) {
    const std::size_t number = header.component[c].quant;
    const bool wide = is_wide(header.quant[number]);
    wide_steps |= wide;
    if ((written >> number & 1) == 0) out.quant_table(number, header.quant[number], wide);
    written |= 1u << number;
  }
  out.frame(header, wide_steps);
  for (unsigned pair = 0; pair < pairs; ++pair) {
    for (const unsigned kind : {kDc, kAc}) out.huffman_table(pair, kind, codes[pair][kind]);
  }
  if (header.interval > 0) out.restart_interval(header.interval);
  out.scan(header);

  std::uint8_t* at = out.end();
  const Token* token = tokens.memory.data();
  for (std::size_t i = 0; i < tokens.ends.size(); ++i) {
    if (i > 0) {
      *at++ = 0xFF;
      *at++ = static_cast<std::uint8_t>(marker::kRestart + (i - 1) % 8);
    }
    const Token* const end = tokens.memory.data() + tokens.ends[i];
    at = entropy.write(token, end, at);
    token = end;
  }
  *at++ = 0xFF;
  *at++ = static_cast<std::uint8_t>(marker::kEnd);
  size_ = static_cast<std::size_t>(at - bytes_.data());
}

}  // namespace fastpipe
