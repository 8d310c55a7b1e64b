#include "png/png_rows.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/at_least.h"

namespace fastpipe {
namespace {

constexpr int kRowsAtOnce = 8;

void unpack(const std::uint8_t* row, int bits, int count, std::uint8_t* out) {
  const int mask = (1 << bits) - 1;
  for (int x = 0; x < count; ++x) {
    const int bit = x * bits;
    out[x] = static_cast<std::uint8_t>(row[bit / 8] >> (8 - bits - bit % 8) & mask);
  }
}

template <typename Sample>
Sample sample_at(const std::uint8_t* at) {
  return static_cast<Sample>(sizeof(Sample) == 2 ? at[0] << 8 | at[1] : at[0]);
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
    const int clear = parts.clear() ? sample_at<std::uint16_t>(parts.transparency.data) & most : -1;
    for (int i = 0; i <= most; ++i) {
      std::array<std::uint8_t, 4>& color = colors[static_cast<std::size_t>(i)];
      color.fill(static_cast<std::uint8_t>(i * 255 / most));
      color[3] = i == clear ? 0 : 255;
    }
  }
  return colors;
}

// Whether pixels are looked up in such a table.
bool looked_up(const PngHeader& header) { return header.has_ids() && header.bits <= 8; }

std::size_t known_ids(const PngParts& parts) { return parts.header.color == PngColor::palette ? parts.colors() : 256; }

Status unknown_id(int id, const PngParts& parts) {
  return error(Code::png_corrupt, "index %d of a palette of %zu", id, parts.colors());
}

// Pixels of 8 bits that lie one behind the other -> RGBX. A byte behind the last pixel may be read.
void pick(const std::uint8_t* row, int count, int step, std::uint8_t* out) {
  const int green = step < 3 ? 0 : 1, blue = 2 * green;
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

// A sample of 8 or 16 bits as one of 8 or 16.
template <typename Out, typename Sample>
Out deepened(Sample sample) {
  if (sizeof(Out) == sizeof(Sample)) return static_cast<Out>(sample);
  return static_cast<Out>(sizeof(Out) == 2 ? sample * 257 : sample >> 8);
}

// Red, green, blue and alpha -> gray (1), gray and alpha (2), RGB (3), RGB and alpha (4).
// Source of gray: Pillow's Convert.c (L24).
template <typename Out>
Out* put(const std::array<Out, 4>& pixel, bool gray, int channels, Out* out) {
  if (channels > 2) {
    std::copy_n(pixel.data(), 3, out);
  } else {
    const auto mixed = 19595ULL * pixel[0] + 38470ULL * pixel[1] + 7471ULL * pixel[2] + 0x8000;
    *out = gray ? pixel[0] : static_cast<Out>(mixed >> 16);
  }
  if (channels % 2 == 0) out[channels - 1] = pixel[3];
  return out + channels;
}

// Pixels as they are stored, of 8 or 16 bits, that are no palette's -> such of a form. Those of the colour that is
// clear have alpha 0.
template <typename Sample, typename Out>
void convert(const std::uint8_t* row, int count, const PngParts& parts, int channels, Out* out) {
  const int stored = png_channels(parts.header.color);
  const bool gray = stored < 3, alpha = stored % 2 == 0, clear = parts.clear() && !alpha;
  std::array<Sample, 3> clear_color = {};
  for (int c = 0; c < stored && clear; ++c) {
    // The chunk has 16 bits for each, of which those that a sample has count.
    clear_color[static_cast<std::size_t>(c)] =
        static_cast<Sample>(sample_at<std::uint16_t>(parts.transparency.data + 2 * c));
  }
  std::array<Out, 4> pixel = {};
  for (int x = 0; x < count; ++x, row += static_cast<std::size_t>(stored) * sizeof(Sample)) {
    bool same = clear;
    for (int c = 0; c < 3; ++c) {
      const auto sample = sample_at<Sample>(row + (gray ? 0 : c) * static_cast<int>(sizeof(Sample)));
      same = same && sample == clear_color[static_cast<std::size_t>(gray ? 0 : c)];
      pixel[static_cast<std::size_t>(c)] = deepened<Out>(sample);
    }
    pixel[3] = same ? Out{0} : static_cast<Out>(~Out{0});
    if (alpha) pixel[3] = deepened<Out>(sample_at<Sample>(row + (stored - 1) * static_cast<int>(sizeof(Sample))));
    out = put(pixel, gray, channels, out);
  }
}

// Rows of a PNG -> pixels of a form, or of what the PNG has.
class RowConverter {
 public:
  explicit RowConverter(const PngDecoder& decoder) : decoder_(decoder), parts_(decoder.parts()) {
    if (looked_up(parts_.header)) colors_ = colors_of(parts_);
  }

  // Pixels [x, x + count) of a row. RGB of 8 bits is written as RGBX if `decoded`. `out` is aligned as samples are.
  Status write(int y, int x, int count, PixelForm form, bool decoded, std::uint8_t* out) {
    const PngHeader& header = parts_.header;
    const std::uint8_t* row = decoder_.row(y);
    const bool rgbx = decoded && form.bits == 8 && form.channels == 3;
    if (header.color == PngColor::gray && header.bits == 8 && form == PixelForm{1, 8}) {
      std::memcpy(out, row + x, static_cast<std::size_t>(count));
    } else if (looked_up(header)) {
      row = png_ids(header, row, &ids_) + x;
      return form.bits == 8 ? look_up(row, count, rgbx ? 4 : form.channels, out)
                            : look_up(row, count, form.channels, reinterpret_cast<std::uint16_t*>(out));
    } else {
      convert_samples(row + static_cast<std::size_t>(x) * header.pixel_bytes(), count, form, rgbx, out);
    }
    return {};
  }

 private:
  void convert_samples(const std::uint8_t* row, int count, PixelForm form, bool rgbx, std::uint8_t* out) const {
    const PngHeader& header = parts_.header;
    const int stored = png_channels(header.color);
    if (rgbx && header.bits == 8) {
      pick(row, count, stored, out);
    } else if (header.bits == 8 && form.bits == 8 && stored == form.channels && !parts_.clear()) {
      std::memcpy(out, row, static_cast<std::size_t>(count) * header.pixel_bytes());
    } else if (header.bits == 8) {
      form.bits == 8 ? convert<std::uint8_t>(row, count, parts_, form.channels, out)
                     : convert<std::uint8_t>(row, count, parts_, form.channels, reinterpret_cast<std::uint16_t*>(out));
    } else {
      form.bits == 8 ? convert<std::uint16_t>(row, count, parts_, rgbx ? 4 : form.channels, out)
                     : convert<std::uint16_t>(row, count, parts_, form.channels, reinterpret_cast<std::uint16_t*>(out));
    }
  }

  template <typename Out>
  Status look_up(const std::uint8_t* ids, int count, int channels, Out* out) const {
    const std::size_t known = known_ids(parts_);
    const bool gray = parts_.header.color == PngColor::gray;
    for (int x = 0; x < count; ++x) {
      if (ids[x] >= known) return unknown_id(ids[x], parts_);
      const auto& color = colors_[ids[x]];
      if (sizeof(Out) == 1 && channels == 4) {
        std::memcpy(out, color.data(), 4);
        out += 4;
        continue;
      }
      std::array<Out, 4> pixel;
      std::transform(color.begin(), color.end(), pixel.begin(), deepened<Out, std::uint8_t>);
      out = put(pixel, gray, channels, out);
    }
    return {};
  }

  const PngDecoder& decoder_;
  const PngParts& parts_;
  Colors colors_ = {};
  std::vector<std::uint8_t> ids_;
};

}  // namespace

const std::uint8_t* png_ids(const PngHeader& header, const std::uint8_t* row, std::vector<std::uint8_t>* room) {
  if (header.bits == 8) return row;
  room->resize(static_cast<std::size_t>(header.size.width));
  unpack(row, header.bits, header.size.width, room->data());
  return room->data();
}

Status png_rows(const PngDecoder& decoder, Rect region, RowSink sink, std::vector<std::uint8_t>* room) {
  const int pixel_bytes = sink.packed ? sink.form.bytes() : sink.form.bytes_decoded();
  const auto stride = static_cast<std::size_t>(region.width) * static_cast<std::size_t>(pixel_bytes);
  at_least(room, stride * kRowsAtOnce + RowSink::kReadBeyond);
  RowConverter converter(decoder);
  for (int y = 0; y < region.height; y += kRowsAtOnce) {
    const int count = std::min(kRowsAtOnce, region.height - y);
    for (int i = 0; i < count; ++i) {
      std::uint8_t* const out = room->data() + static_cast<std::size_t>(i) * stride;
      const Status status = converter.write(region.y + y + i, region.x, region.width, sink.form, !sink.packed, out);
      if (!status.ok()) return status;
    }
    sink.take(sink.context, y, count, room->data(), static_cast<std::ptrdiff_t>(stride));
  }
  return {};
}

int png_channels(const PngParts& parts) {
  const PngColor color = parts.header.color;
  return png_channels(color == PngColor::palette ? PngColor::rgb : color) + (parts.clear() ? 1 : 0);
}

Status png_samples(const PngDecoder& decoder, std::uint8_t* out) {
  const PngHeader& header = decoder.header();
  const PixelForm form = {png_channels(decoder.parts()), header.bits == 16 ? 16 : 8};
  RowConverter converter(decoder);
  for (int y = 0; y < header.size.height; ++y) {
    const Status status = converter.write(y, 0, header.size.width, form, false, out);
    if (!status.ok()) return status;
    out += static_cast<std::ptrdiff_t>(header.size.width) * form.bytes();
  }
  return {};
}

}  // namespace fastpipe
