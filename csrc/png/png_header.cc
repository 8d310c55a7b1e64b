#include "png/png_header.h"

#include <libdeflate.h>

#include <cinttypes>
#include <cstring>

namespace fastpipe {
namespace {

constexpr std::size_t kHeaderBytes = 13;
// Deflate writes at most 258 bytes for a bit of length and one of distance.
constexpr std::size_t kMostInflation = 1032;

std::uint32_t big_endian(const std::uint8_t* bytes) {
  return static_cast<std::uint32_t>(bytes[0]) << 24 | static_cast<std::uint32_t>(bytes[1]) << 16 |
         static_cast<std::uint32_t>(bytes[2]) << 8 | bytes[3];
}

// A chunk: 4 bytes of length, 4 of name, the payload, 4 of checksum.
struct Chunk {
  char name[5] = "";
  std::uint8_t* payload = nullptr;
  std::size_t size = 0;

  bool is(const char* other) const { return std::strcmp(name, other) == 0; }
  bool critical() const { return (name[0] & 0x20) == 0; }
};

class Chunks {
 public:
  Chunks(std::uint8_t* data, std::size_t size) : next_(data), left_(size) {}

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
    if (chunk->critical() && libdeflate_crc32(0, next_ + 4, chunk->size + 4) != expected) {
      return error(Code::png_corrupt, "the checksum of its %s chunk is wrong", chunk->name);
    }
    next_ += chunk->size + 12;
    left_ -= chunk->size + 12;
    return {};
  }

 private:
  std::uint8_t* next_;
  std::size_t left_;
};

int channels(PngColor color) {
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

bool known(int bits, PngColor color) {
  const bool power = bits == 1 || bits == 2 || bits == 4 || bits == 8 || bits == 16;
  if (color == PngColor::gray) return power;
  if (color == PngColor::palette) return power && bits <= 8;
  return channels(color) != 0 && (bits == 8 || bits == 16);
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
  if (bytes[12] != 0) return error(Code::png_unsupported, "it is interlaced");
  header->size = {static_cast<int>(width), static_cast<int>(height)};
  return {};
}

}  // namespace

std::size_t PngHeader::row_bytes() const {
  const auto samples = static_cast<std::size_t>(size.width) * static_cast<std::size_t>(channels(color));
  return (samples * static_cast<std::size_t>(bits) + 7) / 8;
}

std::size_t PngHeader::pixel_bytes() const {
  return static_cast<std::size_t>(bits < 8 ? 1 : channels(color) * bits / 8);
}

std::size_t PngHeader::inflated_bytes() const { return (row_bytes() + 1) * static_cast<std::size_t>(size.height); }

Status parse_png(std::uint8_t* data, std::size_t size, std::int64_t max_pixels, PngParts* parts) {
  *parts = {};
  if (size < sizeof kPngSignature || std::memcmp(data, kPngSignature, sizeof kPngSignature) != 0) {
    return error(Code::not_png, "%s", "");
  }
  Chunks chunks(data + sizeof kPngSignature, size - sizeof kPngSignature);
  Chunk chunk;
  Status status = chunks.next(&chunk);
  if (status.ok()) status = read_header(chunk, max_pixels, &parts->header);
  std::uint8_t* deflated_end = nullptr;
  bool idat_ended = false;
  while (status.ok()) {
    status = chunks.next(&chunk);
    if (!status.ok() || chunk.is("IEND")) break;
    if (chunk.is("IDAT")) {
      if (idat_ended) return error(Code::png_corrupt, "another chunk stands between its IDAT chunks");
      if (deflated_end == nullptr) parts->deflated = deflated_end = chunk.payload;
      std::memmove(deflated_end, chunk.payload, chunk.size);
      deflated_end += chunk.size;
      continue;
    }
    idat_ended = deflated_end != nullptr;
    if (chunk.is("PLTE")) {
      if (chunk.size == 0 || chunk.size % 3 != 0 || chunk.size > 768) {
        return error(Code::png_corrupt, "a palette of %zu bytes", chunk.size);
      }
      parts->palette = chunk.payload;
      parts->colors = chunk.size / 3;
    } else if (chunk.critical()) {
      return error(Code::png_unsupported, "%s chunk", chunk.name);
    }
  }
  if (!status.ok()) return status;
  const PngHeader& header = parts->header;
  if (header.color == PngColor::palette && parts->palette == nullptr) {
    return error(Code::png_corrupt, "it has no palette");
  }
  if (parts->deflated == nullptr) return error(Code::png_corrupt, "it has no pixels");
  parts->deflated_bytes = static_cast<std::size_t>(deflated_end - parts->deflated);
  if (header.inflated_bytes() / kMostInflation > parts->deflated_bytes) {
    return error(Code::png_corrupt, "%d x %d pixels cannot be in %zu compressed bytes", header.size.width,
                 header.size.height, parts->deflated_bytes);
  }
  return status;
}

}  // namespace fastpipe
