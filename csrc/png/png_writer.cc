#include "png/png_writer.h"

#include <libdeflate.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

#include "png/png_header.h"

namespace fastpipe {
namespace {

// zlib's best is as small, and takes eight times as long; a level less gives 20 % more bytes.
constexpr int kLevel = 8;

void put(std::vector<std::uint8_t>* out, std::size_t at, std::uint32_t value) {
  for (std::size_t i = 0; i < 4; ++i) (*out)[at + i] = static_cast<std::uint8_t>(value >> (24 - 8 * i));
}

// Closes the chunk that begins at `begin` and whose payload has been added: its length and its checksum.
void close_chunk(std::vector<std::uint8_t>* out, std::size_t begin) {
  const std::size_t end = out->size();
  put(out, begin, static_cast<std::uint32_t>(end - begin - 8));
  out->resize(end + 4);
  put(out, end, libdeflate_crc32(0, out->data() + begin + 4, end - begin - 4));
}

std::size_t open_chunk(std::vector<std::uint8_t>* out, const char* name) {
  const std::size_t begin = out->size();
  out->resize(begin + 4);
  out->insert(out->end(), name, name + 4);
  return begin;
}

std::vector<std::uint8_t> with_filters(const std::uint8_t* ids, Size size, int bits) {
  const std::size_t row = static_cast<std::size_t>(size.width) * static_cast<std::size_t>(bits / 8);
  std::vector<std::uint8_t> rows((row + 1) * static_cast<std::size_t>(size.height));  // filter 0 is none
  for (std::size_t y = 0; y < static_cast<std::size_t>(size.height); ++y) {
    std::memcpy(rows.data() + y * (row + 1) + 1, ids + y * row, row);
  }
  return rows;
}

}  // namespace

std::vector<std::uint8_t> write_mask_png(const std::uint8_t* ids, Size size, int bits) {
  const std::vector<std::uint8_t> rows = with_filters(ids, size, bits);
  const std::unique_ptr<libdeflate_compressor, decltype(&libdeflate_free_compressor)> compressor(
      libdeflate_alloc_compressor(kLevel), &libdeflate_free_compressor);
  if (compressor == nullptr) throw std::bad_alloc();

  std::vector<std::uint8_t> out(kPngSignature, kPngSignature + sizeof kPngSignature);
  std::size_t chunk = open_chunk(&out, "IHDR");
  out.resize(out.size() + 13);
  put(&out, chunk + 8, static_cast<std::uint32_t>(size.width));
  put(&out, chunk + 12, static_cast<std::uint32_t>(size.height));
  out[chunk + 16] = static_cast<std::uint8_t>(bits);  // then gray and the only ways of compression, filters: all 0
  close_chunk(&out, chunk);

  chunk = open_chunk(&out, "IDAT");
  const std::size_t begin = out.size();
  out.resize(begin + libdeflate_zlib_compress_bound(compressor.get(), rows.size()));
  const std::size_t bytes =
      libdeflate_zlib_compress(compressor.get(), rows.data(), rows.size(), out.data() + begin, out.size() - begin);
  out.resize(begin + bytes);
  close_chunk(&out, chunk);
  close_chunk(&out, open_chunk(&out, "IEND"));
  return out;
}

}  // namespace fastpipe
