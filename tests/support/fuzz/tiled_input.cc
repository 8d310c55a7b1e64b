#include "tiled_input.h"

#include <algorithm>
#include <cstring>

#include "tiled/tiled_header.h"

namespace fuzz {
namespace {

// Bytes that are likely to matter: none, all, and the limits of numbers.
std::uint8_t likely_byte(Random* random) {
  constexpr std::uint8_t kBytes[] = {0, 1, 7, 8, 16, 0x7F, 0x80, 0xFF};
  return random->one_in(2) ? random->byte() : kBytes[random->below(sizeof kBytes)];
}

void damage(Random* random, Bytes* tif) {
  const std::size_t magic = 8;  // without it, it is no KEY.tif
  const std::size_t head = std::min(tif->size(), fastpipe::kTiledHeadBytes);
  if (tif->size() <= magic) return;
  switch (random->below(4)) {
    case 0:  // a byte of the tags, or of the places of tiles
      (*tif)[magic + random->below(head - magic)] = likely_byte(random);
      break;
    case 1: {  // a number of eight bytes there
      if (head < magic + 8) return;
      const std::uint64_t number = random->one_in(2) ? random->below(tif->size() + 9) : random->next();
      std::memcpy(tif->data() + magic + random->below(head - magic - 8), &number, sizeof number);
      break;
    }
    case 2:  // a byte of a tile
      (*tif)[magic + random->below(tif->size() - magic)] = likely_byte(random);
      break;
    default:  // the end is missing
      if (random->one_in(4)) tif->resize(magic + random->below(tif->size() - magic));
      break;
  }
}

}  // namespace

Bytes make_tiled_input(Random* random, const std::vector<Bytes>& seeds) {
  Bytes tif = seeds[random->below(seeds.size())];
  const int count = 1 + random->below(3);
  for (int i = 0; i < count; ++i) damage(random, &tif);
  return tif;
}

}  // namespace fuzz
