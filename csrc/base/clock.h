// The steady clock, in nanoseconds.
#pragma once

#include <chrono>
#include <cstdint>

namespace fastpipe {

inline std::uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace fastpipe
