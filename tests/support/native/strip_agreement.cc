// All kernels of the strips that this machine has, beside those in plain C++: the same bytes. Needs neither libjpeg nor
// Python, so it also runs where only a compiler and an emulator are.
//
//     strip_agreement [COUNT]
//
// Prints the kernels' names: of the inverse DCT, of colours, and how many remove stuffing. Exit status 1: two differ.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "jpeg/decode/color.h"
#include "jpeg/decode/idct.h"
#include "jpeg/unstuff.h"

namespace {

using namespace fastpipe;

using Bytes = std::vector<std::uint8_t>;

int below(std::mt19937* random, int end) { return static_cast<int>((*random)() % static_cast<unsigned>(end)); }

// ---------------------------------------------------------------------------------------- inverse DCT

struct Pairs {
  alignas(64) std::int16_t first[kPairCoefficients];
  alignas(64) std::int16_t second[kPairCoefficients];
  std::uint16_t quant[64];
};

// Blocks as encoders make them, and blocks of values that none makes: at the limits of what kernels accept, or
// anything.
Pairs random_pairs(std::mt19937* random) {
  Pairs pairs = {};
  const int kind = below(random, 4), density = 1 + below(random, 64), most = 1 << below(random, 16);
  for (std::uint16_t& step : pairs.quant) {
    step = static_cast<std::uint16_t>(kind == 0 ? 1 + below(random, 255) : kind == 1 ? 1 : (*random)());
    if (kind == 3) step = static_cast<std::uint16_t>(below(random, 3));
  }
  for (std::int16_t* block : {pairs.first, pairs.second}) {
    for (int i = 0; i < kPairCoefficients; ++i) {
      if (below(random, 64) >= density) continue;
      int value = below(random, 2 * most) - most;
      if (below(random, 16) == 0) value = below(random, 2) == 0 ? kMostCoefficient + below(random, 2) : -32768;
      if (kind == 0) value = value % (1 + kMostCoefficient / pairs.quant[i / 16 * 8 + i % 8]);
      block[i] = static_cast<std::int16_t>(value);
    }
  }
  return pairs;
}

// Whether a kernel may give up on a block that the reference takes.
bool may_give_up(const Pairs& pairs) {
  for (const std::int16_t* block : {pairs.first, pairs.second}) {
    for (int column = 0; column < 16; ++column) {
      int sum = 0;
      for (int row = 0; row < 8; ++row) {
        sum += std::abs(static_cast<std::int16_t>(block[row * 16 + column] * pairs.quant[row * 8 + column % 8]));
      }
      if (sum > kMostColumn) return true;
    }
  }
  return false;
}

constexpr int kStride = 48;  // more than two pairs
constexpr std::uint8_t kUntouched = 0xA5;

struct Transformed {
  bool good = false;
  Bytes pixels = Bytes(kStride * 9, kUntouched);

  // Refused blocks have no pixels, but nothing else may be written.
  bool operator==(const Transformed& other) const { return good == other.good && pixels == other.pixels; }
  void clear(int size, int blocks) {
    if (good) return;
    for (int y = 0; y < size; ++y) std::memset(pixels.data() + y * kStride, 0, static_cast<std::size_t>(size * blocks));
  }
};

Transformed of_pair(const IdctKernels& kernels, int size, const Pairs& pairs) {
  Transformed made;
  made.good = kernels.pair(size)(pairs.first, pairs.quant, made.pixels.data(), kStride);
  made.clear(size, 2);
  return made;
}

Transformed of_quad(const IdctKernels& kernels, const Pairs& pairs) {
  Transformed made;
  std::uint8_t* const pixels = made.pixels.data();
  if (kernels.quad != nullptr) {
    made.good = kernels.quad(pairs.first, pairs.second, pairs.quant, pixels, kStride);
  } else {
    made.good = kernels.at_8(pairs.first, pairs.quant, pixels, kStride);
    made.good &= kernels.at_8(pairs.second, pairs.quant, pixels + 16, kStride);
  }
  made.clear(8, 4);
  return made;
}

bool transforms_agree(std::mt19937* random, const IdctKernels& kernels, int* good) {
  const Pairs pairs = random_pairs(random);
  const bool excused = std::strcmp(kernels.name, "neon") == 0 && may_give_up(pairs);
  const auto same = [excused](const Transformed& found, const Transformed& expected) {
    return found == expected || (excused && !found.good);
  };
  for (const int size : {1, 2, 4, 8}) {
    const Transformed expected = of_pair(kScalarIdct, size, pairs);
    const Transformed found = of_pair(kernels, size, pairs);
    *good += found.good;
    if (same(found, expected)) continue;
    std::printf("the inverse DCT to %d x %d by %s differs\n", size, size, kernels.name);
    return false;
  }
  if (same(of_quad(kernels, pairs), of_quad(kScalarIdct, pairs))) return true;
  std::printf("the inverse DCT of four blocks by %s differs\n", kernels.name);
  return false;
}

// ---------------------------------------------------------------------------------------- colours

constexpr int kMostColumns = 200;
constexpr int kBefore = 64;  // readable

// A row's memory; `at` is its first element.
template <typename Element>
struct Row {
  std::vector<Element> memory = std::vector<Element>(kBefore + 8 * (kMostColumns + kColorStep));
  Element* at = memory.data() + kBefore;
};

// What each function makes of the same rows, one after the other.
Bytes converted(const ColorKernels& kernels, std::mt19937 random, int count) {
  Row<std::uint8_t> near, far, light, out;
  Row<std::uint16_t> sums;
  for (auto* row : {&near, &far, &light}) {
    for (std::uint8_t& value : row->memory)
      value = static_cast<std::uint8_t>(random() % 5 == 0 ? 255 * (random() % 2) : random());
  }
  Bytes all;
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

// Widths 1 to 64 in turn, then any.
bool colors_agree(std::mt19937* random, const ColorKernels& kernels, int round) {
  const int count = round < 64 ? round + 1 : 1 + below(random, kMostColumns);
  if (converted(kernels, *random, count) == converted(kScalarColor, *random, count)) return true;
  std::printf("the colours of %d pixels by %s differ\n", count, kernels.name);
  return false;
}

// All 2^24 colours would take an emulator minutes: each pair of cb and cr, at some brightness.
bool all_colors_agree(const ColorKernels& kernels) {
  for (int pair = 0; pair < 1 << 16; pair += 256) {
    Bytes light(256 + kColorStep), cb(light), cr(light), made(4 * light.size()), expected(made);
    for (int i = 0; i < 256; ++i) {
      light[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(pair / 256 * 37 + i * 11);
      cb[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(pair / 256);
      cr[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(i);
    }
    kernels.ycc_to_rgbx(light.data(), cb.data(), cr.data(), made.data(), 256);
    kScalarColor.ycc_to_rgbx(light.data(), cb.data(), cr.data(), expected.data(), 256);
    if (std::memcmp(made.data(), expected.data(), 4 * 256) == 0) continue;
    std::printf("colours of cb = %d by %s differ\n", pair / 256, kernels.name);
    return false;
  }
  return true;
}

// ---------------------------------------------------------------------------------------- stuffing

struct Unstuffed {
  bool good = false;
  Bytes bytes;

  bool operator==(const Unstuffed& other) const { return good == other.good && bytes == other.bytes; }
};

// Memory behind which nothing is readable.
class Guarded {
 public:
  static constexpr std::size_t kGuard = 65536;  // whole pages, whatever their size

  Guarded()
      : memory_(static_cast<std::uint8_t*>(
            mmap(nullptr, 2 * kGuard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    if (memory_ == MAP_FAILED || mprotect(memory_ + kGuard, kGuard, PROT_NONE) != 0) std::abort();
  }
  ~Guarded() { munmap(memory_, 2 * kGuard); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  const std::uint8_t* hold(const Bytes& bytes) {
    std::uint8_t* const first = memory_ + kGuard - bytes.size();
    std::copy(bytes.begin(), bytes.end(), first);
    return first;
  }

 private:
  std::uint8_t* const memory_;
};

// Of the first `size` bytes; those behind them are readable, too.
Unstuffed unstuffed(Unstuff unstuff, const Bytes& stuffed, std::size_t size) {
  constexpr std::size_t kSlack = 32;
  Bytes memory(size + kSlack + 1, kUntouched);
  static Guarded guarded;
  const std::uint8_t* const begin = guarded.hold(stuffed);
  const std::uint8_t* const end = unstuff(begin, begin + size, begin + stuffed.size(), memory.data());
  if (memory.back() != kUntouched) return {};
  if (end == nullptr) return {false, {1}};
  return {true, Bytes(memory.data(), memory.data() + (end - memory.data()))};
}

bool unstuffing_agrees(std::mt19937* random, Unstuff unstuff, std::size_t number) {
  const int size = below(random, 200), behind = below(random, 70), rate = 1 + below(random, 60);
  Bytes stuffed;
  while (static_cast<int>(stuffed.size()) < size + behind) {
    const bool marked = below(random, rate) == 0;
    stuffed.push_back(marked ? 0xFF : static_cast<std::uint8_t>(below(random, 255)));
    if (marked && below(random, 200) != 0) stuffed.push_back(0);
  }
  const auto end = static_cast<std::size_t>(size);
  if (unstuffed(unstuff, stuffed, end) == unstuffed(unstuff_scalar, stuffed, end)) return true;
  std::printf("stuffing is removed in another way by function %zu\n", number);
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 2000;
  for (const IdctKernels* kernels : all_idct_kernels()) std::printf("%s ", kernels->name);
  for (const ColorKernels* kernels : all_color_kernels()) std::printf("%s ", kernels->name);
  std::printf("%zu\n", all_unstuffs().size());
  std::mt19937 random(1);
  int good = 0;
  for (int round = 0; round < rounds; ++round) {
    for (const IdctKernels* kernels : all_idct_kernels()) {
      if (!transforms_agree(&random, *kernels, &good)) return 1;
    }
    for (const ColorKernels* kernels : all_color_kernels()) {
      if (!colors_agree(&random, *kernels, round)) return 1;
    }
    for (std::size_t i = 0; i < all_unstuffs().size(); ++i) {
      if (!unstuffing_agrees(&random, all_unstuffs()[i], i)) return 1;
    }
  }
  for (const ColorKernels* kernels : all_color_kernels()) {
    if (!all_colors_agree(*kernels)) return 1;
  }
  const int tried = rounds * 4 * static_cast<int>(all_idct_kernels().size());
  std::printf("%d of %d transforms are of blocks that kernels accept\n", good, tried);
  return good > tried / 4 && good < tried ? 0 : 1;
}
