#include "fpc_input.h"

#include <algorithm>

#include "coefficients/fpc_header.h"

namespace fuzz {
namespace {

using namespace fastpipe;

constexpr std::size_t kFixedHeader = 48;

void put(Bytes* fpc, std::size_t at, std::uint32_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes && at + i < fpc->size(); ++i)
    (*fpc)[at + i] = static_cast<std::uint8_t>(value >> (8 * i));
}

// The size in the header follows the file's, so that the damage is met further in.
void mend_size(Bytes* fpc) { put(fpc, 4, static_cast<std::uint32_t>(fpc->size()), 4); }

void change_header(Random* random, Bytes* fpc) {
  const std::size_t at = random->below(std::min(kFixedHeader, fpc->size()));
  (*fpc)[at] = random->one_in(2) ? random->byte() : static_cast<std::uint8_t>((*fpc)[at] ^ 1 << random->below(8));
}

void change_size(Random* random, Bytes* fpc) {
  const std::uint32_t sides[] = {0, 1, 8, 9, 4096, 65500, 65535};
  put(fpc, random->one_in(2) ? 16 : 18, sides[random->below(std::size(sides))], 2);
}

void change_places(Random* random, Bytes* fpc) {
  const std::size_t end = std::min(FpcHeader::bytes(fpc->data(), fpc->size()), fpc->size());
  if (end <= kFixedHeader + 8) return;
  const std::size_t at = end - 4 - 4 * random->below(std::max<std::size_t>((end - kFixedHeader) / 8, 1));
  const std::uint32_t places[] = {0,
                                  1,
                                  static_cast<std::uint32_t>(end),
                                  static_cast<std::uint32_t>(fpc->size()),
                                  ~0u,
                                  static_cast<std::uint32_t>(random->below(fpc->size()))};
  put(fpc, at, places[random->below(std::size(places))], 4);
}

// Bytes of the blocks: near the begin of a row they are lengths and kinds.
void change_blocks(Random* random, Bytes* fpc) {
  const std::size_t begin = std::min(FpcHeader::bytes(fpc->data(), fpc->size()), fpc->size());
  if (begin >= fpc->size()) return;
  for (int left = 1 + random->below(6); left > 0; --left) {
    const std::size_t span = random->one_in(2) ? std::min<std::size_t>(fpc->size() - begin, 64) : fpc->size() - begin;
    const std::uint8_t bytes[] = {0, 1, 0x7F, 0x80, 0xFF, random->byte()};
    (*fpc)[begin + random->below(span)] = bytes[random->below(std::size(bytes))];
  }
}

// Lengths that sum up to the same, so that the row still ends where it should.
void move_length(Random* random, Bytes* fpc) {
  const std::size_t begin = FpcHeader::bytes(fpc->data(), fpc->size());
  if (begin + 16 >= fpc->size()) return;
  std::uint8_t& one = (*fpc)[begin + random->below(std::size_t{4})];
  std::uint8_t& other = (*fpc)[begin + random->below(std::size_t{4})];
  const auto moved = static_cast<std::uint8_t>(random->below(1 + std::min<int>(one, 255 - other)));
  if (&one == &other) return;
  one = static_cast<std::uint8_t>(one - moved);
  other = static_cast<std::uint8_t>(other + moved);
}

void change_end(Random* random, Bytes* fpc) {
  if (random->one_in(2)) {
    fpc->resize(random->below(fpc->size()) + 1);
  } else {
    fpc->resize(fpc->size() + random->below(std::size_t{300}), random->byte());
  }
  if (random->one_in(2)) mend_size(fpc);
}

}  // namespace

Bytes make_fpc_input(Random* random, const std::vector<Bytes>& seeds) {
  Bytes fpc = seeds[random->below(seeds.size())];
  using Damage = void (*)(Random*, Bytes*);
  const Damage damages[] = {change_blocks, change_blocks, change_blocks, change_blocks, move_length,
                            move_length,   change_header, change_size,   change_places, change_end};
  for (int left = 1 + random->below(4); left > 0 && !fpc.empty(); --left) {
    damages[random->below(std::size(damages))](random, &fpc);
  }
  return fpc;
}

Size fpc_size_of(const Bytes& fpc) {
  if (fpc.size() < kFixedHeader) return {16, 16};
  return {fpc[16] | fpc[17] << 8, fpc[18] | fpc[19] << 8};
}

}  // namespace fuzz
