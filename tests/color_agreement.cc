// The colour kernels that this machine has, on rows of any bytes and lengths: the same pixels.
//
//     color_agreement [COUNT]
//
// Prints how many kernels there are. Exit status 1: two differ.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "jpeg/decode/color.h"

namespace {

using namespace fastpipe;

constexpr int kMostColumns = 200;
constexpr int kBefore = 64;  // readable

// A row's memory; `at` is its first element.
template <typename Element>
struct Row {
  std::vector<Element> memory = std::vector<Element>(kBefore + 8 * (kMostColumns + kColorStep));
  Element* at = memory.data() + kBefore;
};

// What each function makes of the same rows, one after the other.
std::vector<std::uint8_t> made(const ColorKernels& kernels, std::mt19937 random, int count) {
  Row<std::uint8_t> near, far, light, out;
  Row<std::uint16_t> sums;
  for (auto* row : {&near, &far, &light}) {
    for (std::uint8_t& value : row->memory)
      value = static_cast<std::uint8_t>(random() % 5 == 0 ? 255 * (random() % 2) : random());
  }
  std::vector<std::uint8_t> all;
  const auto keep = [&](int elements) { all.insert(all.end(), out.at, out.at + elements); };
  for (const int bias : {1, 2}) {
    kernels.twice_as_high(near.at, far.at, bias, out.at, count);
    keep(count);
  }
  kernels.three_to_one(near.at - 1, far.at - 1, sums.at - 1, count + 2);
  kernels.twice_as_wide_sums(sums.at, out.at, count);
  keep(2 * count);
  kernels.twice_as_wide(near.at, out.at, count);
  keep(2 * count);
  kernels.ycc_to_rgbx(light.at, near.at, far.at, out.at, count);
  keep(4 * count);
  kernels.gray_to_rgbx(light.at, out.at, count);
  keep(4 * count);
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 2000;
  const ColorKernels* const more = color_kernels_avx512();
  std::printf("%d kernels\n", more == nullptr ? 1 : 2);
  std::mt19937 random(1);
  for (int round = 0; round < rounds && more != nullptr; ++round) {
    const int count = 1 + static_cast<int>(random() % kMostColumns);
    if (made(*color_kernels_avx2(), random, count) == made(*more, random, count)) continue;
    std::printf("round %d: they differ\n", round);
    return 1;
  }
  return 0;
}
