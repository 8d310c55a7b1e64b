#include "jpeg/parsed_header.h"

#include <cstring>

#include "jpeg/markers.h"
#include "jpeg/zigzag.h"

namespace fastpipe {
namespace {

constexpr int kMostSide = 65500;  // libjpeg's limit

// The bytes of a segment after its length.
struct MarkerSegment {
  const std::uint8_t* data;
  std::size_t size;

  int byte(std::size_t at) const { return data[at]; }
  int word(std::size_t at) const { return data[at] << 8 | data[at + 1]; }
  bool starts_with(const char* text, std::size_t length) const {
    return size >= length && std::memcmp(data, text, length) == 0;
  }
};

class Reader {
 public:
  explicit Reader(ParsedHeader* header) : header_(header) {}

  bool read(int code, const MarkerSegment& segment) {
    switch (code) {
      case marker::kQuantTables:
        return quant_tables(segment);
      case marker::kHuffmanTables:
        return huffman_tables(segment);
      case marker::kBaselineFrame:
      case marker::kExtendedFrame:
        return frame(segment);
      case marker::kRestartInterval:
        if (segment.size != 2) return false;
        header_->interval = segment.word(0);
        return true;
      case marker::kScan:
        return scan(segment);
      case marker::kFirstApp:
        return app0(segment);
      case marker::kAdobe:
        adobe(segment);
        return true;
      default:
        return (code > marker::kFirstApp && code <= marker::kLastApp) || code == marker::kComment;
    }
  }

 private:
  bool quant_tables(MarkerSegment segment) {
    while (segment.size > 0) {
      const int wide = segment.byte(0) >> 4;
      const auto number = static_cast<std::size_t>(segment.byte(0) & 15);
      const std::size_t bytes = 1 + 64 * static_cast<std::size_t>(wide + 1);
      if (wide > 1 || number >= ScanTables::kMost || segment.size < bytes) return false;
      for (std::size_t i = 0; i < 64; ++i) {
        const int step = wide != 0 ? segment.word(1 + 2 * i) : segment.byte(1 + i);
        header_->tables.quant[number][kZigzagToRows[i]] = static_cast<std::uint16_t>(step);
      }
      quant_seen_ |= 1u << number;
      segment = {segment.data + bytes, segment.size - bytes};
    }
    return true;
  }

  bool huffman_tables(MarkerSegment segment) {
    while (segment.size > 0) {
      constexpr std::size_t kCounts = 16;
      const int kind = segment.byte(0) >> 4;
      const auto number = static_cast<std::size_t>(segment.byte(0) & 15);
      if (kind > 1 || number >= ScanTables::kMost || segment.size < 1 + kCounts) return false;
      std::size_t symbols = 0;
      for (std::size_t i = 1; i <= kCounts; ++i) symbols += segment.data[i];
      const std::size_t bytes = 1 + kCounts + symbols;
      if (symbols > 256 || segment.size < bytes) return false;
      auto& tables = kind == 0 ? header_->tables.dc : header_->tables.ac;
      tables[number] = {segment.data, segment.data + 1 + kCounts};
      segment = {segment.data + bytes, segment.size - bytes};
    }
    return true;
  }

  bool frame(const MarkerSegment& segment) {
    if (header_->components != 0 || segment.size < 6) return false;
    header_->size = {segment.word(3), segment.word(1)};
    header_->components = segment.byte(5);
    const auto [width, height] = header_->size;
    const bool some = width > 0 && height > 0 && width <= kMostSide && height <= kMostSide;
    const int components = header_->components;
    if (segment.byte(0) != 8 || !some || (components != 1 && components != 3)) return false;
    if (segment.size != 6 + 3 * static_cast<std::size_t>(components)) return false;
    for (std::size_t c = 0; c < static_cast<std::size_t>(components); ++c) {
      header_->ids[c] = segment.byte(6 + 3 * c);
      header_->factors[c] = segment.byte(7 + 3 * c);
      const int across = header_->factors[c] >> 4, down = header_->factors[c] & 15;
      header_->tables.quant_of[c] = static_cast<std::size_t>(segment.byte(8 + 3 * c));
      if (across < 1 || down < 1 || across > 4 || down > 4) return false;
      // A scan of one component has MCUs of one block, whatever its factors.
      if (components == 1) continue;
      if (c == 0) {
        header_->across = across;
        header_->down = down;
      }
      const int most = c == 0 ? 2 : 1;
      if (across > most || down > most) return false;
    }
    return true;
  }

  bool scan(const MarkerSegment& segment) {
    const auto components = static_cast<std::size_t>(header_->components);
    if (components == 0 || segment.size != 4 + 2 * components) return false;
    if (segment.byte(0) != header_->components) return false;
    ScanTables& tables = header_->tables;
    for (std::size_t c = 0; c < components; ++c) {
      if (segment.byte(1 + 2 * c) != header_->ids[c]) return false;
      tables.dc_of[c] = static_cast<std::size_t>(segment.byte(2 + 2 * c) >> 4);
      tables.ac_of[c] = static_cast<std::size_t>(segment.byte(2 + 2 * c) & 15);
      if (tables.quant_of[c] >= ScanTables::kMost || (quant_seen_ >> tables.quant_of[c] & 1) == 0) return false;
      for (std::size_t other = 0; other < c; ++other) {
        if (header_->ids[other] == header_->ids[c]) return false;
      }
    }
    const std::size_t spectrum = 1 + 2 * components;
    const bool whole =
        segment.byte(spectrum) == 0 && segment.byte(spectrum + 1) == 63 && segment.byte(spectrum + 2) == 0;
    return whole && (components == 1 || ycc());
  }

  // libjpeg warns of versions that it does not know.
  bool app0(const MarkerSegment& segment) {
    constexpr std::size_t kJfifBytes = 14, kVersionAt = 5, kDensityAt = 7;
    if (segment.size < kJfifBytes || !segment.starts_with("JFIF", 5)) return true;
    jfif_ = true;
    header_->jfif = {segment.byte(kVersionAt + 1), segment.byte(kDensityAt), segment.word(kDensityAt + 1),
                     segment.word(kDensityAt + 3)};
    return segment.byte(kVersionAt) == 1;
  }

  void adobe(const MarkerSegment& segment) {
    constexpr std::size_t kTransformAt = 11;
    if (segment.size <= kTransformAt || !segment.starts_with("Adobe", 5)) return;
    adobe_ = true;
    transform_ = segment.byte(kTransformAt);
  }

  // What the three components mean; libjpeg's rules, as far as they lead to YCbCr.
  bool ycc() const {
    if (jfif_) return true;
    if (adobe_) return transform_ == 1;
    return header_->ids[0] == 1 && header_->ids[1] == 2 && header_->ids[2] == 3;
  }

  ParsedHeader* header_;
  unsigned quant_seen_ = 0;
  bool jfif_ = false;
  bool adobe_ = false;
  int transform_ = 0;
};

}  // namespace

bool ParsedHeader::read(const std::uint8_t* data, std::size_t data_size) {
  components = interval = 0;
  across = down = 1;
  tables.dc = tables.ac = {};
  jfif = {};
  Reader reader(this);
  if (data_size < 2 || data[0] != 0xFF || data[1] != marker::kStart) return false;
  for (std::size_t at = 2; data_size - at >= 4;) {
    if (data[at] != 0xFF) return false;
    const int code = data[at + 1];
    const std::size_t length = static_cast<std::size_t>(data[at + 2] << 8 | data[at + 3]);
    if (length < 2 || length > data_size - at - 2) return false;
    if (!reader.read(code, {data + at + 4, length - 2})) return false;
    at += 2 + length;
    if (code == marker::kScan) {
      bytes = at;
      if (interval >= mcus_per_row() * mcu_rows()) interval = 0;
      return true;
    }
  }
  return false;
}

int ParsedHeader::mcus_per_row() const { return ceil_div(size.width, kBlockSide * across); }

int ParsedHeader::mcu_rows() const { return ceil_div(size.height, kBlockSide * down); }

std::size_t ParsedHeader::intervals_of_grid() const {
  if (interval == 0) return 1;
  if (mcus_per_row() % interval != 0) return 0;
  return static_cast<std::size_t>(mcus_per_row() / interval) * static_cast<std::size_t>(mcu_rows());
}

}  // namespace fastpipe
