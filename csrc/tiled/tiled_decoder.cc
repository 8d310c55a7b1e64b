#include "tiled/tiled_decoder.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "base/at_least.h"
#include "png/png_rows.h"

namespace fastpipe {
namespace {

// The place of a tile's rows in the band.
struct TilePlace {
  std::uint8_t* first;  // the tile's pixel at the top left of the region
  std::ptrdiff_t stride;
  std::size_t row_bytes;
};

// A tile may give its rows again, from the first: they are copied, so that the sink gets each row once.
void copy_rows(void* context, int y, int count, const std::uint8_t* rows, std::ptrdiff_t stride) {
  const auto* place = static_cast<const TilePlace*>(context);
  for (int i = 0; i < count; ++i) {
    std::memcpy(place->first + (y + i) * place->stride, rows + i * stride, place->row_bytes);
  }
}

// The part of [begin, end) that lies in [first, first + length), counted from `first`.
struct Overlap {
  int begin;
  int end;
  int length() const { return end - begin; }
};

Overlap overlap(int begin, int end, int first, int length) {
  return {std::max(begin - first, 0), std::min(end - first, length)};
}

}  // namespace

Status TiledDecoder::open(const std::uint8_t* data, std::size_t known, std::size_t size, PartReader rest,
                          std::int64_t max_pixels) {
  data_ = data;
  known_ = known;
  size_ = size;
  rest_ = rest;
  return header_.read(data, known, size, max_pixels);
}

Status TiledDecoder::read(std::uint64_t first, void* out, std::size_t count) const {
  auto* const bytes = static_cast<std::uint8_t*>(out);
  if (first + count <= known_) {
    std::memcpy(bytes, data_ + first, count);
    return {};
  }
  if (rest_.read == nullptr) return error(Code::tiff_corrupt, "%s", "it ends before its tiles");
  return rest_.read(rest_.context, first, bytes, count);
}

Status TiledDecoder::read_places(const Band& band) {
  const auto count = static_cast<std::size_t>(band.end - band.first);
  const auto first = static_cast<std::uint64_t>(band.row) * static_cast<std::uint64_t>(header_.across) +
                     static_cast<std::uint64_t>(band.first);
  offsets_.resize(count);
  sizes_.resize(count);
  Status status = read(header_.offsets_at + first * 8, offsets_.data(), count * 8);
  if (status.ok()) status = read(header_.sizes_at + first * 4, sizes_.data(), count * 4);
  return status;
}

// The tile with this index in the band.
Status TiledDecoder::open_tile(int index) {
  const std::uint64_t offset = offsets_[static_cast<std::size_t>(index)];
  const std::uint32_t size = sizes_[static_cast<std::size_t>(index)];
  if (size > size_ || offset > size_ - size) {
    return error(Code::tiff_corrupt, "a tile of %u bytes at byte %" PRIu64 " of %zu", size, offset, size_);
  }
  Status status = read(offset, at_least(&bytes_, size), size);
  const std::int64_t tile_pixels = static_cast<std::int64_t>(header_.tile.width) * header_.tile.height;
  if (status.ok()) {
    status = has_pngs() ? png_.open(bytes_.data(), size, tile_pixels) : jpeg_.open(bytes_.data(), size, tile_pixels);
  }
  if (!status.ok()) return status;
  const Size found = has_pngs() ? png_.header().size : jpeg_.size();
  if (found.width != header_.tile.width || found.height != header_.tile.height) {
    return error(Code::tiff_corrupt, "a tile of %d x %d pixels, expected %d x %d", found.width, found.height,
                 header_.tile.width, header_.tile.height);
  }
  return status;
}

// The part of the tile that is open.
Status TiledDecoder::decode_tile(int denominator, Rect part, RowSink sink, DecodeMethod method) {
  if (!has_pngs()) return jpeg_.decode(denominator, part, sink, method);
  const Status status = png_.decode(part.y, part.height);
  return status.ok() ? png_rows(png_, part, sink, &room_) : status;
}

Status TiledDecoder::decode(int denominator, Rect region, RowSink sink, DecodeMethod method) {
  if (!region.inside(scaled_down(header_.size, denominator))) return error(Code::bad_crop, "%s", "of tiles");
  // The sides of tiles are multiples of 16, so they stay whole at each scale.
  const Size tile = scaled_down(header_.tile, denominator);
  const int right = region.x + region.width;
  const int bottom = region.y + region.height;
  const auto pixel_bytes = static_cast<std::size_t>(sink.form.bytes_decoded());
  const std::size_t stride = static_cast<std::size_t>(region.width) * pixel_bytes;
  const int last_row = (bottom - 1) / tile.height;
  Band band = {region.y / tile.height, region.x / tile.width, (right - 1) / tile.width + 1};
  for (; band.row <= last_row; ++band.row) {
    Status status = read_places(band);
    if (!status.ok()) return status;
    const Overlap rows = overlap(region.y, bottom, band.row * tile.height, tile.height);
    std::uint8_t* const pixels =
        at_least(&band_, static_cast<std::size_t>(rows.length()) * stride + RowSink::kReadBeyond);
    for (int column = band.first; column < band.end; ++column) {
      const Overlap columns = overlap(region.x, right, column * tile.width, tile.width);
      const int x = column * tile.width + columns.begin - region.x;
      TilePlace place = {pixels + static_cast<std::size_t>(x) * pixel_bytes, static_cast<std::ptrdiff_t>(stride),
                         static_cast<std::size_t>(columns.length()) * pixel_bytes};
      const int index = column - band.first;
      if (sizes_[static_cast<std::size_t>(index)] == 0) {
        for (int y = 0; y < rows.length(); ++y) std::memset(place.first + y * place.stride, 0, place.row_bytes);
        continue;
      }
      status = open_tile(index);
      if (!status.ok()) return status;
      const Rect part = {columns.begin, rows.begin, columns.length(), rows.length()};
      status = decode_tile(denominator, part, {&place, copy_rows, sink.form}, method);
      if (!status.ok()) return status;
    }
    const int y = band.row * tile.height + rows.begin - region.y;
    sink.take(sink.context, y, rows.length(), pixels, static_cast<std::ptrdiff_t>(stride));
  }
  return {};
}

Status TiledDecoder::check() {
  const Rect whole = {0, 0, header_.tile.width, header_.tile.height};
  for (Band band = {0, 0, header_.across}; band.row < header_.down; ++band.row) {
    Status status = read_places(band);
    for (int column = 0; column < header_.across && status.ok(); ++column) {
      if (sizes_[static_cast<std::size_t>(column)] == 0) continue;
      status = open_tile(column);
      if (status.ok()) status = decode_tile(1, whole, {nullptr, forget_rows, PixelForm()}, DecodeMethod::best);
    }
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace fastpipe
