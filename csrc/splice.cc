#include "splice.h"

namespace fastpipe {
namespace {

// Marker codes of ITU-T T.81, table B.1.
constexpr std::uint8_t kBaselineFrame = 0xC0, kExtendedFrame = 0xC1, kHuffmanTables = 0xC4, kStart = 0xD8, kEnd = 0xD9;
constexpr std::uint8_t kScan = 0xDA, kQuantTables = 0xDB, kRestartInterval = 0xDD, kRestart = 0xD0;
constexpr std::uint8_t kJfif = 0xE0, kAdobe = 0xEE, kFill = 0xFF;

bool needed(std::uint8_t marker) {
  switch (marker) {
    case kBaselineFrame:
    case kExtendedFrame:
    case kHuffmanTables:
    case kScan:
    case kQuantTables:
    case kRestartInterval:
    case kJfif:
    case kAdobe:
      return true;
    default:
      return false;
  }
}

void put16(std::vector<std::uint8_t>* out, std::size_t at, int value) {
  (*out)[at] = static_cast<std::uint8_t>(value >> 8);
  (*out)[at + 1] = static_cast<std::uint8_t>(value);
}

bool copy_header(const std::uint8_t* jpeg, std::size_t header_bytes, Size size, std::vector<std::uint8_t>* out) {
  out->assign({0xFF, kStart});
  bool framed = false;
  std::uint8_t marker = 0;
  for (std::size_t at = 2; at < header_bytes;) {
    if (header_bytes - at < 4 || jpeg[at] != 0xFF) return false;
    marker = jpeg[at + 1];
    const std::size_t bytes = 2 + static_cast<std::size_t>(jpeg[at + 2] << 8 | jpeg[at + 3]);
    const bool no_length = (marker >= kRestart && marker <= kEnd) || marker == kFill;
    if (marker < kBaselineFrame || no_length || bytes < 4 || bytes > header_bytes - at) return false;
    if (needed(marker)) {
      const std::size_t start = out->size();
      out->insert(out->end(), jpeg + at, jpeg + at + bytes);
      if (marker == kBaselineFrame || marker == kExtendedFrame) {
        if (bytes < 9 || framed) return false;
        framed = true;
        put16(out, start + 5, size.height);
        put16(out, start + 7, size.width);
      }
    }
    at += bytes;
  }
  return framed && marker == kScan;
}

}  // namespace

bool splice(const std::uint8_t* jpeg, std::size_t header_bytes, const RestartMap& map, const TileRange& range,
            Size size, std::vector<std::uint8_t>* out) {
  if (!copy_header(jpeg, header_bytes, size, out)) return false;
  unsigned number = 0;
  for (int row = range.row; row < range.row + range.rows; ++row) {
    for (int column = range.column; column < range.column + range.columns; ++column) {
      const auto tile = static_cast<std::size_t>(row) * range.per_row + column;
      out->insert(out->end(), map.begin(tile), map.end(tile));
      const std::uint8_t marker[2] = {0xFF, static_cast<std::uint8_t>(kRestart + number++ % 8)};
      out->insert(out->end(), marker, marker + 2);
    }
  }
  out->back() = kEnd;
  return true;
}

}  // namespace fastpipe
