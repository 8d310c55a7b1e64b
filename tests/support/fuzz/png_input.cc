#include "png_input.h"

#include <libdeflate.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "mutate.h"

namespace fuzz {
namespace {

constexpr std::size_t kSignature = 8;
constexpr std::size_t kMostRows = 1 << 20;  // bytes

std::uint32_t number_at(const Bytes& png, std::size_t at) {
  return std::uint32_t{png[at]} << 24 | std::uint32_t{png[at + 1]} << 16 | std::uint32_t{png[at + 2]} << 8 |
         std::uint32_t{png[at + 3]};
}

void put_number(Bytes* png, std::size_t at, std::uint32_t number) {
  for (int i = 0; i < 4; ++i)
    (*png)[at + static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(number >> (24 - 8 * i));
}

// Its chunks, as far as their lengths make sense.
std::vector<Range> chunks_of(const Bytes& png) {
  std::vector<Range> chunks;
  for (std::size_t at = kSignature; at + 12 <= png.size();) {
    const std::size_t payload = number_at(png, at);
    if (payload > png.size() - at - 12) break;
    chunks.push_back({at, at + 12 + payload});
    at += 12 + payload;
  }
  return chunks;
}

bool is_pixels(const Bytes& png, Range chunk) { return std::memcmp(png.data() + chunk.begin + 4, "IDAT", 4) == 0; }

void fix_checksums(Bytes* png) {
  for (const Range chunk : chunks_of(*png)) {
    put_number(png, chunk.end - 4, libdeflate_crc32(0, png->data() + chunk.begin + 4, chunk.size() - 8));
  }
}

void change_bytes(Random* random, Range range, Bytes* png) {
  if (range.size() == 0) return;
  for (int left = 1 + random->below(4); left > 0; --left) {
    std::uint8_t& byte = (*png)[range.begin + random->below(range.size())];
    byte = random->one_in(2) ? random->byte() : static_cast<std::uint8_t>(byte ^ 1 << random->below(8));
  }
}

void damage_payload(Random* random, Bytes* png) {
  const std::vector<Range> chunks = chunks_of(*png);
  if (chunks.empty()) return;
  const Range chunk = chunks[random->below(chunks.size())];
  change_bytes(random, {chunk.begin + (random->one_in(4) ? 4 : 8), chunk.end - 4}, png);
}

void damage_header(Random* random, Bytes* png) {
  if (png->size() < kSignature + 25) return;
  const std::size_t at = kSignature + 8;
  if (random->one_in(2)) {
    const std::uint32_t sizes[] = {0, 1, 7, 255, 65535, 65536, 0x7FFFFFFF, 0x80000000, ~0u};
    put_number(png, at + 4 * random->below(std::size_t{2}), sizes[random->below(std::size(sizes))]);
  } else {
    const std::uint8_t values[] = {0, 1, 2, 3, 4, 6, 8, 16};
    (*png)[at + 8 + random->below(std::size_t{5})] = values[random->below(std::size(values))];
  }
}

void damage_order(Random* random, Bytes* png) {
  const std::vector<Range> chunks = chunks_of(*png);
  if (chunks.empty()) return;
  const Range chunk = chunks[random->below(chunks.size())];
  const Bytes taken = copy(*png, chunk);
  const std::size_t to = chunks[random->below(chunks.size())].begin;
  if (random->one_in(2)) insert(png, to, taken);
  if (random->one_in(2)) erase(png, chunk);
}

void damage_length(Random* random, Bytes* png) {
  const std::vector<Range> chunks = chunks_of(*png);
  if (chunks.empty()) return;
  const std::size_t at = chunks[random->below(chunks.size())].begin;
  const std::uint32_t lengths[] = {0, 1, number_at(*png, at) + 1, number_at(*png, at) - 1, 0x7FFFFFFF, ~0u, ~0u - 11};
  put_number(png, at, lengths[random->below(std::size(lengths))]);
}

void cut(Random* random, Bytes* png) { png->resize(random->below(png->size() + 1)); }

// Whatever changes in the rows, the compressed bytes are true.
void damage_rows(Random* random, Bytes* png) {
  const std::vector<Range> chunks = chunks_of(*png);
  const auto found = std::find_if(chunks.begin(), chunks.end(), [png](Range chunk) { return is_pixels(*png, chunk); });
  if (found == chunks.end()) return;
  const Range payload = {found->begin + 8, found->end - 4};
  Bytes rows(kMostRows);
  std::size_t bytes = 0;
  const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> reader(
      libdeflate_alloc_decompressor(), &libdeflate_free_decompressor);
  if (libdeflate_zlib_decompress(reader.get(), png->data() + payload.begin, payload.size(), rows.data(), rows.size(),
                                 &bytes) != LIBDEFLATE_SUCCESS) {
    return;
  }
  rows.resize(bytes);
  change_bytes(random, {0, bytes}, &rows);
  const std::size_t width = static_cast<std::size_t>(png_size_of(*png).width);
  if (bytes > 0 && random->one_in(2)) rows[random->below(bytes) / (width + 1) * (width + 1)] = random->byte() % 7;
  if (random->one_in(6)) rows.resize(random->one_in(2) ? random->below(bytes + 1) : bytes + 1 + random->below(50));
  const std::unique_ptr<libdeflate_compressor, decltype(&libdeflate_free_compressor)> writer(
      libdeflate_alloc_compressor(random->below(7)), &libdeflate_free_compressor);
  Bytes deflated(libdeflate_zlib_compress_bound(writer.get(), rows.size()));
  deflated.resize(libdeflate_zlib_compress(writer.get(), rows.data(), rows.size(), deflated.data(), deflated.size()));
  erase(png, payload);
  insert(png, payload.begin, deflated);
  put_number(png, found->begin, static_cast<std::uint32_t>(deflated.size()));
}

}  // namespace

fastpipe::Size png_size_of(const Bytes& png) {
  if (png.size() < kSignature + 16) return {16, 16};
  const auto side = [&png](std::size_t at) { return static_cast<int>(number_at(png, at) & 0xFFFF); };
  return {side(kSignature + 8), side(kSignature + 12)};
}

Bytes make_png_input(Random* random, const std::vector<Bytes>& seeds) {
  using Damage = void (*)(Random*, Bytes*);
  const Damage damages[] = {damage_payload, damage_header, damage_order, damage_length, cut,
                            damage_rows,    damage_rows,   damage_rows,  damage_rows};
  Bytes png = seeds[random->below(seeds.size())];
  for (int left = 1 + random->below(3); left > 0; --left) damages[random->below(std::size(damages))](random, &png);
  if (!random->one_in(5)) fix_checksums(&png);
  return png;
}

}  // namespace fuzz
