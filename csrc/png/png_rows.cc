#include "png/png_rows.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/at_least.h"

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

// What each id means: RGB and alpha. Of ids that the palette lacks all is 0.
using Colors = std::array<std::array<std::uint8_t, 4>, 256>;

Colors colors_of(const PngParts& parts) {
  Colors colors = {};
  if (parts.header.color == PngColor::palette) {
    for (std::size_t i = 0; i < parts.colors(); ++i) {
      std::memcpy(colors[i].data(), parts.palette.data + 3 * i, 3);
      colors[i][3] = i < parts.transparency.size ? parts.transparency.data[i] : 255;
    }
  } else {
    const int most = (1 << parts.header.bits) - 1;
    for (int i = 0; i <= most; ++i) colors[static_cast<std::size_t>(i)].fill(static_cast<std::uint8_t>(i * 255 / most));
  }
  return colors;
}

// Whether pixels are looked up in such a table.
bool looked_up(const PngHeader& header) { return header.has_ids() && header.bits <= 8; }

std::size_t known_ids(const PngParts& parts) { return parts.header.color == PngColor::palette ? parts.colors() : 256; }

Status unknown_id(int id, const PngParts& parts) {
  return error(Code::png_corrupt, "index %d of a palette of %zu", id, parts.colors());
}

// Pixels that lie one behind the other -> RGBX: their first bytes of red, green and blue, or of gray. A byte behind the
// last pixel may be read.
void pick(const std::uint8_t* row, int count, const PngHeader& header, std::uint8_t* out) {
  const std::size_t step = header.pixel_bytes(), sample = static_cast<std::size_t>(header.bits) / 8;
  const bool gray = header.color == PngColor::gray_alpha || header.color == PngColor::gray;
  const std::size_t green = gray ? 0 : sample, blue = 2 * green;
  if (step == 3) {
    for (int x = 0; x < count; ++x, row += 3, out += 4) std::memcpy(out, row, 4);
    return;
  }
  for (int x = 0; x < count; ++x, row += step, out += 4) {
    out[0] = row[0];
    out[1] = row[green];
    out[2] = row[blue];
  }
}

// The samples of a row as numbers, and alpha behind those that have another colour than the clear one.
template <typename Sample>
Sample* copy_samples(const std::uint8_t* row, const PngParts& parts, int channels, Sample* out) {
  const int stored = png_channels(parts.header.color);  // no palette's
  const auto sample_at = [](const std::uint8_t* at) {
    return static_cast<Sample>(sizeof(Sample) == 2 ? at[0] << 8 | at[1] : at[0]);
  };
  std::array<Sample, 3> clear = {};
  if (channels > stored) {
    // A chunk has 16 bits for each, of which those that a sample has count.
    for (int c = 0; c < stored; ++c) {
      const std::uint8_t* const at = parts.transparency.data + 2 * c;
      clear[static_cast<std::size_t>(c)] = static_cast<Sample>(at[0] << 8 | at[1]);
    }
  }
  for (int x = 0; x < parts.header.size.width; ++x) {
    bool same = true;
    for (int c = 0; c < stored; ++c, row += sizeof(Sample)) {
      *out = sample_at(row);
      if (channels > stored) same = same && *out == clear[static_cast<std::size_t>(c)];
      ++out;
    }
    if (channels > stored) *out++ = same ? Sample{0} : static_cast<Sample>(~Sample{0});
  }
  return out;
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
  const auto stride = static_cast<std::size_t>(region.width) * 4;
  at_least(room, stride * kRowsAtOnce + kReadBeyond);
  std::vector<std::uint8_t> ids;
  const bool look_up = looked_up(header);
  const Colors colors = look_up ? colors_of(decoder.parts()) : Colors();
  const std::size_t known = known_ids(decoder.parts());
  for (int y = 0; y < region.height; y += kRowsAtOnce) {
    const int count = std::min(kRowsAtOnce, region.height - y);
    for (int i = 0; i < count; ++i) {
      const std::uint8_t* row = decoder.row(region.y + y + i);
      std::uint8_t* out = room->data() + static_cast<std::size_t>(i) * stride;
      if (!look_up) {
        pick(row + static_cast<std::size_t>(region.x) * header.pixel_bytes(), region.width, header, out);
        continue;
      }
      row = png_ids(header, row, &ids) + region.x;
      for (int x = 0; x < region.width; ++x, out += 4) {
        if (row[x] >= known) return unknown_id(row[x], decoder.parts());
        std::memcpy(out, colors[row[x]].data(), 4);
      }
    }
    sink.take(sink.context, y, count, room->data(), static_cast<std::ptrdiff_t>(stride));
  }
  return {};
}

int png_channels(const PngParts& parts) {
  const PngColor color = parts.header.color;
  return png_channels(color == PngColor::palette ? PngColor::rgb : color) + (parts.clear() ? 1 : 0);
}

Status png_samples(const PngDecoder& decoder, void* out) {
  const PngParts& parts = decoder.parts();
  const PngHeader& header = parts.header;
  const int channels = png_channels(parts);
  auto* bytes = static_cast<std::uint8_t*>(out);
  auto* words = static_cast<std::uint16_t*>(out);
  std::vector<std::uint8_t> room;
  const bool look_up = looked_up(header);
  Colors colors = look_up ? colors_of(parts) : Colors();
  if (look_up && header.color == PngColor::gray && parts.clear()) {
    const int clear = (parts.transparency.data[0] << 8 | parts.transparency.data[1]) & ((1 << header.bits) - 1);
    for (std::size_t i = 0; i < colors.size(); ++i) colors[i][1] = i == static_cast<std::size_t>(clear) ? 0 : 255;
  }
  for (int y = 0; y < header.size.height; ++y) {
    const std::uint8_t* row = decoder.row(y);
    if (!look_up) {
      if (header.bits == 16) {
        words = copy_samples(row, parts, channels, words);
      } else {
        bytes = copy_samples(row, parts, channels, bytes);
      }
      continue;
    }
    row = png_ids(header, row, &room);
    for (int x = 0; x < header.size.width; ++x, bytes += channels) {
      if (row[x] >= known_ids(parts)) return unknown_id(row[x], parts);
      std::memcpy(bytes, colors[row[x]].data(), static_cast<std::size_t>(channels));
    }
  }
  return {};
}

}  // namespace fastpipe
