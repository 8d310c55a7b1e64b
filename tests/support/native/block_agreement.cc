// All kernels for stored blocks that this machine has, on rows of blocks of any bytes: the same coefficients, or the
// same refusal. Needs neither libjpeg nor Python, so it also runs where only a compiler and an emulator are.
//
//     block_agreement [COUNT]
//
// Prints the kernels' names. Exit status 1: two kernels differ.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "coefficients/block_bytes.h"
#include "coefficients/block_kernels.h"
#include "coefficients/block_row.h"
#include "jpeg/decode/coefficient_rows.h"

namespace {

using namespace fastpipe;

constexpr std::size_t kPadding = 128;
constexpr int kMostBlocks = 21;

std::uint32_t below(std::mt19937* random, std::uint32_t end) { return (*random)() % end; }

// A row as the writer makes it, with values of all sizes.
std::vector<std::uint8_t> make_row(std::mt19937* random, int count, BlockBytesWriter write) {
  std::vector<std::uint8_t> lengths, kinds((count + 1) / 2), low, wide((count + 7) / 8), high, payload;
  for (int i = 0; i < count; ++i) {
    std::uint64_t mask = (static_cast<std::uint64_t>((*random)()) << 32 | (*random)()) >> 1;
    mask &= ~0ull >> below(random, 64) >> 1;
    if (below(random, 3) != 0) mask &= static_cast<std::uint64_t>((*random)()) << 32 | (*random)();
    std::int16_t values[63 + 64] = {};
    const int most = 1 << below(random, 11);
    for (std::int16_t& value : values) {
      value = static_cast<std::int16_t>(1 + below(random, static_cast<std::uint32_t>(most)));
      if (below(random, 2) != 0) value = static_cast<std::int16_t>(-value);
    }
    std::uint8_t bytes[kMostBlockBytes + kBlockWrittenBeyond];
    unsigned kind;
    const std::uint8_t* const end = write(mask, values, &kind, bytes);
    lengths.push_back(static_cast<std::uint8_t>(end - bytes));
    kinds[static_cast<std::size_t>(i / 2)] |= static_cast<std::uint8_t>(kind << i % 2 * 4);
    payload.insert(payload.end(), bytes, const_cast<std::uint8_t*>(end));
    low.push_back(static_cast<std::uint8_t>((*random)()));
    if (below(random, 5) == 0) {
      wide[static_cast<std::size_t>(i / 8)] |= static_cast<std::uint8_t>(1 << i % 8);
      high.push_back(static_cast<std::uint8_t>((*random)()));
    }
  }
  std::vector<std::uint8_t> row;
  for (const auto* part : {&lengths, &kinds, &low, &wide, &high, &payload})
    row.insert(row.end(), part->begin(), part->end());
  row.resize(row.size() + kPadding);
  return row;
}

struct Found {
  bool good = false;
  std::vector<std::int16_t> coefficients;
};

Found read(const BlockKernels& kernels, const BlockRow& row, int first, int count) {
  constexpr std::size_t kRoom = (kMostBlocks + 1) / 2 * CoefficientRows::kPairStride;
  alignas(64) static std::int16_t pairs[kRoom];
  std::memset(pairs, 0x55, sizeof pairs);
  std::vector<std::int16_t> dc(static_cast<std::size_t>(first + count));
  row.read_dc(first + count, dc.data());
  Found found;
  found.good = kernels.read(row, row.payload + row.bytes_before(first), first, count, dc.data() + first, pairs);
  for (int pair = 0; pair < (count + 1) / 2; ++pair) {
    const std::int16_t* const at = pairs + pair * CoefficientRows::kPairStride;
    found.coefficients.insert(found.coefficients.end(), at, at + kPairCoefficients);
  }
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20000;
  const std::vector<const BlockKernels*> kernels = all_block_kernels();
  for (const BlockKernels* each : kernels) std::printf("%s ", each->name);
  std::mt19937 random(1), again(1);
  int good = 0, refused = 0;
  for (int round = 0; round < rounds; ++round) {
    const int count = 1 + static_cast<int>(below(&random, kMostBlocks));
    again = random;
    std::vector<std::uint8_t> bytes = make_row(&random, count, write_block_scalar);
    for (const BlockBytesWriter write : all_block_bytes_writers()) {
      std::mt19937 same = again;
      if (bytes == make_row(&same, count, write)) continue;
      std::printf("\nround %d: the writers differ\n", round);
      return 1;
    }
    const bool damaged = below(&random, 3) == 0;
    const std::size_t end = bytes.size() - kPadding;
    for (int left = damaged ? 1 + static_cast<int>(below(&random, 3)) : 0; left > 0; --left) {
      bytes[below(&random, static_cast<std::uint32_t>(end))] = static_cast<std::uint8_t>(random());
    }
    BlockRow row;
    if (!row.find(bytes.data(), bytes.data() + end, count)) continue;
    const int first = static_cast<int>(below(&random, static_cast<std::uint32_t>(count)));
    const int taken = 1 + static_cast<int>(below(&random, static_cast<std::uint32_t>(count - first)));
    const Found expected = read(kScalarBlocks, row, first, taken);
    ++(expected.good ? good : refused);
    for (const BlockKernels* each : kernels) {
      const Found found = read(*each, row, first, taken);
      if (found.good == expected.good && (!found.good || found.coefficients == expected.coefficients)) continue;
      std::printf("\nround %d: %s differs from scalar\n", round, each->name);
      return 1;
    }
  }
  std::printf("\n%d rows, %d refused\n", good, refused);
  return good > rounds / 2 && refused > rounds / 100 ? 0 : 1;
}
