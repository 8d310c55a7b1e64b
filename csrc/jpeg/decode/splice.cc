#include "jpeg/decode/splice.h"

#include <algorithm>

#include "jpeg/markers.h"

namespace fastpipe {
namespace {

bool needed(std::uint8_t code) {
  switch (code) {
    case marker::kBaselineFrame:
    case marker::kExtendedFrame:
    case marker::kHuffmanTables:
    case marker::kScan:
    case marker::kQuantTables:
    case marker::kRestartInterval:
    case marker::kJfif:
    case marker::kAdobe:
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
  out->assign({0xFF, marker::kStart});
  bool framed = false;
  std::uint8_t code = 0;
  for (std::size_t at = 2; at < header_bytes;) {
    if (header_bytes - at < 4 || jpeg[at] != 0xFF) return false;
    code = jpeg[at + 1];
    const std::size_t bytes = 2 + static_cast<std::size_t>(jpeg[at + 2] << 8 | jpeg[at + 3]);
    const bool no_length = (code >= marker::kRestart && code <= marker::kEnd) || code == marker::kFill;
    if (code < marker::kBaselineFrame || no_length || bytes < 4 || bytes > header_bytes - at) return false;
    if (needed(code)) {
      const std::size_t start = out->size();
      out->insert(out->end(), jpeg + at, jpeg + at + bytes);
      if (code == marker::kBaselineFrame || code == marker::kExtendedFrame) {
        if (bytes < 9 || framed) return false;
        framed = true;
        put16(out, start + 5, size.height);
        put16(out, start + 7, size.width);
      }
    }
    at += bytes;
  }
  return framed && code == marker::kScan;
}

constexpr int kFancyWidth = 5;  // Note [upsampling margin]

}  // namespace

TileRange tiles_needed(Size image, Size tile, Size grid, int denominator, Rect region) {
  constexpr int kMargin = kUpsamplingMargin;
  int left = std::max(region.x - kMargin, 0) * denominator / tile.width;
  const int top = std::max(region.y - kMargin, 0) * denominator / tile.height;
  int right = std::min(ceil_div((region.x + region.width + kMargin) * denominator, tile.width), grid.width);
  const int bottom = std::min(ceil_div((region.y + region.height + kMargin) * denominator, tile.height), grid.height);
  const auto width = [&] { return std::min(right * tile.width, image.width) - left * tile.width; };
  while (width() < kFancyWidth * denominator && right - left < grid.width) left > 0 ? --left : ++right;
  return {grid.width, left, right - left, top, bottom - top};
}

Size size_of(const TileRange& range, Size image, Size tile) {
  return {std::min((range.column + range.columns) * tile.width, image.width) - range.column * tile.width,
          std::min((range.row + range.rows) * tile.height, image.height) - range.row * tile.height};
}

bool splice(const std::uint8_t* jpeg, std::size_t header_bytes, const RestartMap& map, const TileRange& range,
            Size size, std::vector<std::uint8_t>* out) {
  if (!copy_header(jpeg, header_bytes, size, out)) return false;
  unsigned number = 0;
  for (int row = range.row; row < range.row + range.rows; ++row) {
    for (int column = range.column; column < range.column + range.columns; ++column) {
      const auto tile = static_cast<std::size_t>(row) * range.per_row + column;
      out->insert(out->end(), map.begin(tile), map.end(tile));
      const std::uint8_t code[2] = {0xFF, static_cast<std::uint8_t>(marker::kRestart + number++ % 8)};
      out->insert(out->end(), code, code + 2);
    }
  }
  out->back() = marker::kEnd;
  return true;
}

}  // namespace fastpipe
