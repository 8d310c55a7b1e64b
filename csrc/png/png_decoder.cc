#include "png/png_decoder.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/at_least.h"
#include "png/unfilter.h"

namespace fastpipe {
namespace {

constexpr std::size_t kZlibHead = 2, kZlibTail = 4;
constexpr std::uint8_t kEmptyFinalBlock[] = {0x01, 0x00, 0x00, 0xFF, 0xFF};

Status inflated(libdeflate_result result) {
  switch (result) {
    case LIBDEFLATE_SUCCESS:
      return {};
    case LIBDEFLATE_SHORT_OUTPUT:
      return error(Code::png_corrupt, "its pixels end too soon");
    case LIBDEFLATE_INSUFFICIENT_SPACE:
      return error(Code::png_surplus, "%s", "");
    default:
      return error(Code::png_corrupt, "its pixels cannot be decompressed");
  }
}

// Source: RFC 1950, section 2.2: deflate, no dictionary, and a check.
bool is_zlib_head(const std::uint8_t* bytes) {
  return (bytes[0] & 0x0F) == 8 && bytes[0] >> 4 <= 7 && (bytes[1] & 0x20) == 0 && (bytes[0] << 8 | bytes[1]) % 31 == 0;
}

// Pixel `from` of a packed row -> pixel `to` of another, whose bits there are 0.
void copy_pixel(const std::uint8_t* row, int from, std::uint8_t* out, int to, int bits, std::size_t bytes) {
  if (bits >= 8) {
    std::memcpy(out + static_cast<std::size_t>(to) * bytes, row + static_cast<std::size_t>(from) * bytes, bytes);
    return;
  }
  const int value = row[from * bits / 8] >> (8 - bits - from * bits % 8) & ((1 << bits) - 1);
  out[to * bits / 8] = static_cast<std::uint8_t>(out[to * bits / 8] | value << (8 - bits - to * bits % 8));
}

}  // namespace

Status PngDecoder::open(const std::uint8_t* data, std::size_t size, std::int64_t max_pixels) {
  const Status status = parse_png(data, size, max_pixels, &parts_);
  row_bytes_ = parts_.header.row_bytes();
  if (status.ok() && decompressor_ == nullptr) {
    decompressor_.reset(libdeflate_alloc_decompressor());
    if (decompressor_ == nullptr) throw std::bad_alloc();
  }
  return status;
}

PngBytes PngDecoder::joined() {
  if (parts_.idats.size() == 1) return parts_.idats.front();
  std::uint8_t* const begin = at_least(&joined_, parts_.deflated_bytes);
  std::uint8_t* end = begin;
  for (const PngBytes& piece : parts_.idats) end = std::copy_n(piece.data, piece.size, end);
  return {begin, parts_.deflated_bytes};
}

Status PngDecoder::inflate_whole(std::vector<std::uint8_t>* out) {
  const std::size_t bytes = parts_.header.inflated_bytes();
  std::uint8_t* const to = at_least(out, bytes + 1);
  const PngBytes from = joined();
  return inflated(libdeflate_zlib_decompress(decompressor_.get(), from.data, from.size, to, bytes, nullptr));
}

// Strips [first, last]. All checksums of their bytes were right; of all strips together there is one more.
Status PngDecoder::inflate_strips(int first, int last) {
  const PngHeader& header = parts_.header;
  const int end = static_cast<int>(parts_.idats.size()) - 1;
  const auto strip_bytes = static_cast<std::size_t>(parts_.strip_rows) * stride();
  first_ = first * parts_.strip_rows;
  const int rows = std::min((last + 1) * parts_.strip_rows, header.size.height) - first_;
  std::size_t left = static_cast<std::size_t>(rows) * stride();
  std::uint8_t* to = at_least(&rows_, left + 1);
  std::uint32_t sum = libdeflate_adler32(0, nullptr, 0);
  std::uint32_t expected = sum;
  for (int i = first; i <= last; ++i) {
    PngBytes piece = parts_.idats[static_cast<std::size_t>(i)];
    const std::size_t around = (i == 0 ? kZlibHead : 0) + (i == end ? kZlibTail : 0);
    if (piece.size < around || (i == 0 && !is_zlib_head(piece.data))) {
      return error(Code::png_corrupt, "its pixels cannot be decompressed");
    }
    if (i == 0) piece = {piece.data + kZlibHead, piece.size - kZlibHead};
    if (i == end) {
      piece.size -= kZlibTail;
      const std::uint8_t* const tail = piece.data + piece.size;
      expected = static_cast<std::uint32_t>(tail[0]) << 24 | static_cast<std::uint32_t>(tail[1]) << 16 |
                 static_cast<std::uint32_t>(tail[2]) << 8 | tail[3];
    } else {
      std::uint8_t* const copy = at_least(&joined_, piece.size + sizeof kEmptyFinalBlock);
      std::copy_n(kEmptyFinalBlock, sizeof kEmptyFinalBlock, std::copy_n(piece.data, piece.size, copy));
      piece = {copy, piece.size + sizeof kEmptyFinalBlock};
    }
    const std::size_t bytes = std::min(strip_bytes, left);
    const Status status =
        inflated(libdeflate_deflate_decompress(decompressor_.get(), piece.data, piece.size, to, bytes, nullptr));
    if (!status.ok()) return status;
    if (looks_up(*to)) return error(Code::png_corrupt, "the first row of strip %d needs the one above", i);
    sum = libdeflate_adler32(sum, to, bytes);
    to += bytes;
    left -= bytes;
  }
  if (first == 0 && last == end && sum != expected) {
    return error(Code::png_corrupt, "the checksum of its pixels is wrong");
  }
  return {};
}

Status PngDecoder::unfilter_rows(std::uint8_t* rows, int first, int count, std::size_t row_bytes) {
  const std::size_t step = parts_.header.pixel_bytes();
  const std::uint8_t* above = zeros_.data();
  for (int y = first; y < first + count; ++y, rows += row_bytes + 1) {
    if (*rows > kMostFilter) return error(Code::png_corrupt, "row %d has filter %d", y, *rows);
    unfilter(*rows, rows + 1, above, row_bytes, step);
    above = rows + 1;
  }
  return {};
}

// Note [Adam7]
Status PngDecoder::decode_passes() {
  const PngHeader& header = parts_.header;
  Status status = inflate_whole(&passes_);
  if (!status.ok()) return status;
  first_ = 0;
  const std::size_t bytes = static_cast<std::size_t>(header.size.height) * stride();
  std::memset(at_least(&rows_, bytes + 1), 0, bytes);
  std::uint8_t* rows = passes_.data();
  for (const PngPass& pass : kPngPasses) {
    const Size part = pass.size(header.size);
    if (part.width < 1) continue;
    const std::size_t part_bytes = header.row_bytes(part.width);
    status = unfilter_rows(rows, 0, part.height, part_bytes);
    if (!status.ok()) return status;
    for (int y = 0; y < part.height; ++y, rows += part_bytes + 1) {
      std::uint8_t* const out = at(pass.first_y + y * pass.step_y) + 1;
      for (int x = 0; x < part.width; ++x) {
        copy_pixel(rows + 1, x, out, pass.first_x + x * pass.step_x, header.bits, header.pixel_bytes());
      }
    }
  }
  return status;
}

Status PngDecoder::decode(int first, int count) {
  zeros_.resize(row_bytes_);
  if (parts_.header.interlaced) return decode_passes();
  Status status;
  if (parts_.strip_rows > 0) {
    status = inflate_strips(first / parts_.strip_rows, (first + count - 1) / parts_.strip_rows);
  } else {
    first_ = 0;
    status = inflate_whole(&rows_);
  }
  if (!status.ok()) return status;
  int begin = first;
  while (begin > first_ && looks_up(*at(begin))) --begin;
  return unfilter_rows(at(begin), begin, first + count - begin, row_bytes_);
}

}  // namespace fastpipe
