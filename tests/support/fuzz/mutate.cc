#include "mutate.h"

namespace fuzz {

void insert(Bytes* jpeg, std::size_t at, const Bytes& more) {
  jpeg->insert(jpeg->begin() + static_cast<std::ptrdiff_t>(at), more.begin(), more.end());
}

void erase(Bytes* jpeg, Range range) {
  jpeg->erase(jpeg->begin() + static_cast<std::ptrdiff_t>(range.begin),
              jpeg->begin() + static_cast<std::ptrdiff_t>(range.end));
}

Bytes copy(const Bytes& jpeg, Range range) {
  return {jpeg.begin() + static_cast<std::ptrdiff_t>(range.begin),
          jpeg.begin() + static_cast<std::ptrdiff_t>(range.end)};
}

Bytes make_input(Random* random, const std::vector<Bytes>& seeds) {
  Bytes jpeg = seeds[random->below(seeds.size())];
  const bool deep = random->one_in(2);
  for (int left = 1 + random->below(3); left > 0; --left) {
    const std::vector<Damage>& damages = deep || random->one_in(3) ? scan_damages() : file_damages();
    damages[random->below(damages.size())].apply(random, seeds, &jpeg);
  }
  return jpeg;
}

}  // namespace fuzz
