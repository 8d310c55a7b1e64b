#include "png/png_rows.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace fastpipe {
namespace {

constexpr int kRowsAtOnce = 8;
constexpr std::size_t kReadBeyond = 64;  // RowSink's promise

void unpack(const std::uint8_t* row, int bits, int count, std::uint8_t* out) {
  const int mask = (1 << bits) - 1;
  for (int x = 0; x < count; ++x) {
    const int bit = x * bits;
    out[x] = static_cast<std::uint8_t>(row[bit / 8] >> (8 - bits - bit % 8) & mask);
  }
}

// The colour of each id, RGBX.
std::array<std::array<std::uint8_t, 4>, 256> colors_of(const PngParts& parts) {
  std::array<std::array<std::uint8_t, 4>, 256> colors = {};
  if (parts.header.color == PngColor::palette) {
    for (std::size_t i = 0; i < parts.colors; ++i) std::memcpy(colors[i].data(), parts.palette + 3 * i, 3);
  } else {
    const int most = (1 << parts.header.bits) - 1;
    for (int i = 0; i <= most; ++i) colors[static_cast<std::size_t>(i)].fill(static_cast<std::uint8_t>(i * 255 / most));
  }
  return colors;
}

}  // namespace

const std::uint8_t* png_ids(const PngHeader& header, const std::uint8_t* row, std::vector<std::uint8_t>* room) {
  if (header.bits == 8) return row;
  room->resize(static_cast<std::size_t>(header.size.width));
  unpack(row, header.bits, header.size.width, room->data());
  return room->data();
}

Status png_rgbx(const PngDecoder& decoder, Rect region, RowSink sink, std::vector<std::uint8_t>* room) {
  const PngHeader& header = decoder.header();
  if (header.bits > 8) return error(Code::png_unsupported, "a picture of 16 bits");
  const auto stride = static_cast<std::size_t>(region.width) * 4;
  room->resize(stride * kRowsAtOnce + kReadBeyond);
  std::vector<std::uint8_t> ids;
  const auto colors = header.has_ids() ? colors_of(decoder.parts()) : decltype(colors_of(decoder.parts())){};
  const std::size_t known = header.color == PngColor::palette ? decoder.parts().colors : 256;
  const std::size_t step = header.pixel_bytes();
  const bool gray = header.color == PngColor::gray_alpha;
  for (int y = 0; y < region.height; y += kRowsAtOnce) {
    const int count = std::min(kRowsAtOnce, region.height - y);
    for (int i = 0; i < count; ++i) {
      const std::uint8_t* row = decoder.row(region.y + y + i);
      std::uint8_t* out = room->data() + static_cast<std::size_t>(i) * stride;
      if (header.has_ids()) {
        row = png_ids(header, row, &ids) + region.x;
        for (int x = 0; x < region.width; ++x, out += 4) {
          if (row[x] >= known) return error(Code::png_corrupt, "index %d of a palette of %zu", row[x], known);
          std::memcpy(out, colors[row[x]].data(), 4);
        }
        continue;
      }
      row += static_cast<std::size_t>(region.x) * step;
      for (int x = 0; x < region.width; ++x, row += step, out += 4) {
        out[0] = row[0];
        out[1] = row[gray ? 0 : 1];
        out[2] = row[gray ? 0 : 2];
      }
    }
    sink.take(sink.context, y, count, room->data(), static_cast<std::ptrdiff_t>(stride));
  }
  return {};
}

}  // namespace fastpipe
