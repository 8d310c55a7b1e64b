#include "png/png_header.h"

#include <libdeflate.h>

#include <cinttypes>
#include <cstring>
#include <utility>

namespace fastpipe {
namespace {

constexpr std::size_t kHeaderBytes = 13;
constexpr char kStripsChunk[] = "fpST";  // ours (docs/explanation/format.md)
// Deflate writes at most 258 bytes for a bit of length and one of distance.
constexpr std::size_t kMostInflation = 1032;

std::uint32_t big_endian(const std::uint8_t* bytes) {
  return static_cast<std::uint32_t>(bytes[0]) << 24 | static_cast<std::uint32_t>(bytes[1]) << 16 |
         static_cast<std::uint32_t>(bytes[2]) << 8 | bytes[3];
}

// A chunk: 4 bytes of length, 4 of name, the payload, 4 of checksum.
struct Chunk {
  char name[5] = "";
  const std::uint8_t* payload = nullptr;
  std::size_t size = 0;

  bool is(const char* other) const { return std::strcmp(name, other) == 0; }
  bool critical() const { return (name[0] & 0x20) == 0; }
  bool decides_on_pixels() const { return critical() || is("tRNS") || is(kStripsChunk); }
};

class Chunks {
 public:
  Chunks(const std::uint8_t* data, std::size_t size) : next_(data), left_(size) {}

  Status next(Chunk* chunk) {
    if (left_ < 12) return error(Code::png_truncated, "it ends without an IEND chunk");
    chunk->size = big_endian(next_);
    for (int i = 0; i < 4; ++i) {
      const std::uint8_t letter = next_[4 + i];
      const std::uint8_t small = letter | 0x20;
      if (small < 'a' || small > 'z') return error(Code::png_corrupt, "a chunk's name is no name");
      chunk->name[i] = static_cast<char>(letter);
    }
    if (chunk->size > left_ - 12) return error(Code::png_truncated, "it ends inside its %s chunk", chunk->name);
    chunk->payload = next_ + 8;
    const std::uint32_t expected = big_endian(chunk->payload + chunk->size);
    if (chunk->decides_on_pixels() && libdeflate_crc32(0, next_ + 4, chunk->size + 4) != expected) {
      return error(Code::png_corrupt, "the checksum of its %s chunk is wrong", chunk->name);
    }
    next_ += chunk->size + 12;
    left_ -= chunk->size + 12;
    return {};
  }

 private:
  const std::uint8_t* next_;
  std::size_t left_;
};

bool known(int bits, PngColor color) {
  const bool power = bits == 1 || bits == 2 || bits == 4 || bits == 8 || bits == 16;
  if (color == PngColor::gray) return power;
  if (color == PngColor::palette) return power && bits <= 8;
  return png_channels(color) != 0 && (bits == 8 || bits == 16);
}

Status read_header(const Chunk& chunk, std::int64_t max_pixels, PngHeader* header) {
  if (!chunk.is("IHDR") || chunk.size != kHeaderBytes) {
    return error(Code::png_corrupt, "its first chunk is %s of %zu bytes, not IHDR of 13", chunk.name, chunk.size);
  }
  const std::uint8_t* const bytes = chunk.payload;
  const std::uint32_t width = big_endian(bytes), height = big_endian(bytes + 4);
  header->bits = bytes[8];
  header->color = static_cast<PngColor>(bytes[9]);
  if (width == 0 || height == 0 || width >> 31 != 0 || height >> 31 != 0) {
    return error(Code::png_corrupt, "%u x %u pixels", width, height);
  }
  if (!known(header->bits, header->color) || bytes[10] != 0 || bytes[11] != 0 || bytes[12] > 1) {
    return error(Code::png_corrupt, "colour type %d with %d bits, compression %d, filters %d, interlacing %d", bytes[9],
                 bytes[8], bytes[10], bytes[11], bytes[12]);
  }
  if (static_cast<std::int64_t>(width) > max_pixels / static_cast<std::int64_t>(height)) {
    return error(Code::too_large, "%u x %u is over %" PRId64 " pixels", width, height, max_pixels);
  }
  header->interlaced = bytes[12] != 0;
  header->size = {static_cast<int>(width), static_cast<int>(height)};
  return {};
}

// What a chunk in front of the pixels says of them; others are passed over.
Status read_side_chunk(const Chunk& chunk, PngParts* parts) {
  const PngHeader& header = parts->header;
  if (chunk.is("PLTE")) {
    if (chunk.size == 0 || chunk.size % 3 != 0 || chunk.size > 768) {
      return error(Code::png_corrupt, "a palette of %zu bytes", chunk.size);
    }
    parts->palette = {chunk.payload, chunk.size};
  } else if (chunk.is("tRNS") && png_channels(header.color) % 2 != 0) {
    const std::size_t needed = header.color == PngColor::rgb ? 6 : 2;
    if (header.color == PngColor::palette ? chunk.size > 256 : chunk.size != needed) {
      return error(Code::png_corrupt, "a tRNS chunk of %zu bytes", chunk.size);
    }
    parts->transparency = {chunk.payload, chunk.size};
  } else if (chunk.is(kStripsChunk)) {
    const std::uint32_t rows = chunk.size == 4 ? big_endian(chunk.payload) : 0;
    if (rows == 0 || rows >> 31 != 0 || header.interlaced) {
      return error(Code::png_corrupt, "its %s chunk names no number of rows", kStripsChunk);
    }
    parts->strip_rows = static_cast<int>(rows);
  } else if (chunk.critical()) {
    return error(Code::png_unsupported, "%s chunk", chunk.name);
  }
  return {};
}

}  // namespace

int png_channels(PngColor color) {
  switch (color) {
    case PngColor::gray:
    case PngColor::palette:
      return 1;
    case PngColor::gray_alpha:
      return 2;
    case PngColor::rgb:
      return 3;
    case PngColor::rgb_alpha:
      return 4;
  }
  return 0;
}

bool has_png_signature(const std::uint8_t* data, std::size_t size) {
  return size >= sizeof kPngSignature && std::memcmp(data, kPngSignature, sizeof kPngSignature) == 0;
}

std::size_t PngHeader::row_bytes(int width) const {
  const auto samples = static_cast<std::size_t>(width) * static_cast<std::size_t>(png_channels(color));
  return (samples * static_cast<std::size_t>(bits) + 7) / 8;
}

std::size_t PngHeader::pixel_bytes() const {
  return static_cast<std::size_t>(bits < 8 ? 1 : png_channels(color) * bits / 8);
}

std::size_t PngHeader::inflated_bytes() const {
  if (!interlaced) return (row_bytes() + 1) * static_cast<std::size_t>(size.height);
  std::size_t bytes = 0;
  for (const PngPass& pass : kPngPasses) {
    const Size part = pass.size(size);
    if (part.width > 0) bytes += (row_bytes(part.width) + 1) * static_cast<std::size_t>(part.height);
  }
  return bytes;
}

Status parse_png_start(const std::uint8_t* data, std::size_t size, std::int64_t max_pixels, PngHeader* header) {
  if (!has_png_signature(data, size)) return error(Code::not_png, "%s", "");
  Chunk chunk;
  const Status status = Chunks(data + sizeof kPngSignature, size - sizeof kPngSignature).next(&chunk);
  return status.ok() ? read_header(chunk, max_pixels, header) : status;
}

Status parse_png(const std::uint8_t* data, std::size_t size, std::int64_t max_pixels, PngParts* parts) {
  std::vector<PngBytes> idats = std::move(parts->idats);  // for its memory
  idats.clear();
  *parts = {};
  Status status = parse_png_start(data, size, max_pixels, &parts->header);
  if (!status.ok()) return status;
  Chunks chunks(data + kPngStartBytes, size - kPngStartBytes);
  Chunk chunk;
  bool idat_ended = false;
  while (true) {
    status = chunks.next(&chunk);
    if (!status.ok()) return status;
    if (chunk.is("IEND")) break;
    if (chunk.is("IDAT")) {
      if (idat_ended) return error(Code::png_corrupt, "another chunk stands between its IDAT chunks");
      idats.push_back({chunk.payload, chunk.size});
      parts->deflated_bytes += chunk.size;
      continue;
    }
    idat_ended = !idats.empty();
    if (idat_ended && !chunk.critical()) continue;
    status = read_side_chunk(chunk, parts);
    if (!status.ok()) return status;
  }
  const PngHeader& header = parts->header;
  if (header.color == PngColor::palette && parts->palette.data == nullptr) {
    return error(Code::png_corrupt, "it has no palette");
  }
  if (idats.empty()) return error(Code::png_corrupt, "it has no pixels");
  if (header.inflated_bytes() / kMostInflation > parts->deflated_bytes) {
    return error(Code::png_corrupt, "%d x %d pixels cannot be in %zu compressed bytes", header.size.width,
                 header.size.height, parts->deflated_bytes);
  }
  if (parts->strip_rows != 0) {
    const std::size_t strips = static_cast<std::size_t>((header.size.height - 1) / parts->strip_rows) + 1;
    if (strips != idats.size()) {
      return error(Code::png_corrupt, "%zu IDAT chunks, and %zu strips of %d rows", idats.size(), strips,
                   parts->strip_rows);
    }
  }
  parts->idats = std::move(idats);
  return {};
}

}  // namespace fastpipe
