#include "tiled/tiled_header.h"

#include <cinttypes>
#include <cstring>

namespace fastpipe {
namespace {

// BigTIFF (https://www.awaresystems.be/imaging/tiff/bigtiff.html): "II", version 43, offsets of 8 bytes, 0, and where
// the tags begin. A tag has its number (u2), type (u2), count (u8), and its value or where that lies (8 bytes).
constexpr std::uint8_t kMagic[8] = {'I', 'I', 43, 0, 8, 0, 0, 0};
constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kTagBytes = 20;
constexpr std::size_t kValueAt = 12;  // in a tag
constexpr std::size_t kValueBytes = 8;

// Tags of TIFF 6.0, and their types.
constexpr int kImageWidth = 256;
constexpr int kImageLength = 257;
constexpr int kCompression = 259;
constexpr int kTileWidth = 322;
constexpr int kTileLength = 323;
constexpr int kTileOffsets = 324;
constexpr int kTileByteCounts = 325;
constexpr int kShort = 3;
constexpr int kLong = 4;
constexpr int kLong8 = 16;
constexpr std::uint64_t kJpegCompression = 7;
constexpr std::uint64_t kPngCompression = 34933;

// Longer sides have products that an int cannot hold once they are rounded up to tiles.
constexpr std::uint64_t kMaxSide = 1 << 30;
constexpr std::uint64_t kMaxTileSide = 1 << 16;
constexpr std::uint64_t kTileMultiple = 16;

template <typename Number>
Number number_at(const std::uint8_t* bytes) {
  Number number;
  std::memcpy(&number, bytes, sizeof number);  // all machines of the engine are little-endian
  return number;
}

// A tag's only number.
std::uint64_t value_of(const std::uint8_t* tag) {
  switch (number_at<std::uint16_t>(tag + 2)) {
    case kShort:
      return number_at<std::uint16_t>(tag + kValueAt);
    case kLong:
      return number_at<std::uint32_t>(tag + kValueAt);
    default:
      return number_at<std::uint64_t>(tag + kValueAt);
  }
}

bool is_side(std::uint64_t value, std::uint64_t most) { return value >= 1 && value <= most; }

bool is_tile_side(std::uint64_t value) { return is_side(value, kMaxTileSide) && value % kTileMultiple == 0; }

}  // namespace

bool is_tiled(const std::uint8_t* data, std::size_t size) {
  return size >= sizeof kMagic && std::memcmp(data, kMagic, sizeof kMagic) == 0;
}

Status TiledHeader::read(const std::uint8_t* data, std::size_t known, std::size_t file_size, std::int64_t max_pixels) {
  if (known < kHeaderBytes + 8 || !is_tiled(data, known)) return error(Code::tiff_corrupt, "%s", "it has no header");
  const std::uint64_t tags_at = number_at<std::uint64_t>(data + sizeof kMagic);
  if (tags_at != kHeaderBytes) return error(Code::tiff_corrupt, "%s", "its tags do not follow the header");
  const std::uint64_t tag_count = number_at<std::uint64_t>(data + tags_at);
  const std::uint64_t most_tags = (known - kHeaderBytes - 8) / kTagBytes;
  if (tag_count > most_tags) return error(Code::tiff_corrupt, "it says that it has %" PRIu64 " tags", tag_count);

  std::uint64_t width = 0, height = 0, tile_width = 0, tile_height = 0, compression = 0;
  const std::uint8_t* offsets = nullptr;
  const std::uint8_t* sizes = nullptr;
  for (std::uint64_t i = 0; i < tag_count; ++i) {
    const std::uint8_t* const tag = data + kHeaderBytes + 8 + i * kTagBytes;
    switch (number_at<std::uint16_t>(tag)) {
      case kImageWidth:
        width = value_of(tag);
        break;
      case kImageLength:
        height = value_of(tag);
        break;
      case kCompression:
        compression = value_of(tag);
        break;
      case kTileWidth:
        tile_width = value_of(tag);
        break;
      case kTileLength:
        tile_height = value_of(tag);
        break;
      case kTileOffsets:
        offsets = tag;
        break;
      case kTileByteCounts:
        sizes = tag;
        break;
      default:
        break;
    }
  }

  if (compression != kJpegCompression && compression != kPngCompression) {
    return error(Code::tiff_corrupt, "compression %" PRIu64 ", expected %" PRIu64 " or %" PRIu64, compression,
                 kJpegCompression, kPngCompression);
  }
  if (!is_side(width, kMaxSide) || !is_side(height, kMaxSide) || !is_tile_side(tile_width) ||
      !is_tile_side(tile_height)) {
    return error(Code::tiff_corrupt, "%" PRIu64 " x %" PRIu64 " pixels in tiles of %" PRIu64 " x %" PRIu64, width,
                 height, tile_width, tile_height);
  }
  if (static_cast<std::int64_t>(width) > max_pixels / static_cast<std::int64_t>(height)) {
    return error(Code::too_large, "%" PRIu64 " x %" PRIu64 " is over %" PRId64 " pixels", width, height, max_pixels);
  }
  size = {static_cast<int>(width), static_cast<int>(height)};
  tile = {static_cast<int>(tile_width), static_cast<int>(tile_height)};
  across = ceil_div(size.width, tile.width);
  down = ceil_div(size.height, tile.height);
  is_png = compression == kPngCompression;

  const std::uint64_t tiles = static_cast<std::uint64_t>(across) * static_cast<std::uint64_t>(down);
  // Where the numbers of a tag lie: in the tag itself, if there is room for them.
  const auto place = [&](const std::uint8_t* tag, int type, std::uint64_t number_bytes, std::uint64_t* at) {
    if (tag == nullptr || number_at<std::uint16_t>(tag + 2) != type) return false;
    if (number_at<std::uint64_t>(tag + 4) != tiles || tiles > file_size / number_bytes) return false;
    const std::uint64_t bytes = tiles * number_bytes;
    *at = bytes <= kValueBytes ? static_cast<std::uint64_t>(tag - data) + kValueAt
                               : number_at<std::uint64_t>(tag + kValueAt);
    return *at <= file_size - bytes;
  };
  if (!place(offsets, kLong8, 8, &offsets_at) || !place(sizes, kLong, 4, &sizes_at)) {
    return error(Code::tiff_corrupt, "it has no place for each of its %d x %d tiles", across, down);
  }
  return {};
}

}  // namespace fastpipe
