// A seed and an input's number -> numbers, the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fuzz {

// SplitMix64 (Steele, Lea, Flood 2014). What a number is does not depend on the inputs before it.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t number) : state_(seed) {
    state_ = next() + number;
    state_ = next();
  }

  std::uint64_t next() {
    std::uint64_t mixed = state_ += 0x9E3779B97F4A7C15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
    return mixed ^ (mixed >> 31);
  }

  // In [0, end), which is not empty.
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(next() % end); }
  int below(int end) { return static_cast<int>(below(static_cast<std::size_t>(end))); }
  bool one_in(std::size_t times) { return below(times) == 0; }
  std::uint8_t byte() { return static_cast<std::uint8_t>(next() >> 56); }
  double fraction() { return static_cast<double>(next() >> 11) / 9007199254740992.0; }

 private:
  std::uint64_t state_;
};

}  // namespace fuzz
