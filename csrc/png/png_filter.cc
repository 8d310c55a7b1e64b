#include "png/png_filter.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace fastpipe {
namespace {

constexpr std::uint8_t kLeft = 1, kUp = 2;  // PNG Specification, section 9.2

// Writes row - predicted, and returns the sum of the differences' sizes.
std::uint64_t differences(const std::uint8_t* row, const std::uint8_t* predicted, std::size_t bytes,
                          std::uint8_t* out) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    out[i] = static_cast<std::uint8_t>(row[i] - predicted[i]);
    sum += static_cast<std::uint64_t>(std::abs(static_cast<std::int8_t>(out[i])));
  }
  return sum;
}

}  // namespace

void png_filter_rows(const std::uint8_t* rows, int count, std::size_t row_bytes, std::size_t pixel_bytes,
                     int strip_rows, std::uint8_t* out) {
  const std::size_t first = std::min(pixel_bytes, row_bytes);
  for (int y = 0; y < count; ++y, rows += row_bytes, out += row_bytes + 1) {
    std::uint64_t up = ~std::uint64_t{0};
    if (y % strip_rows != 0) up = differences(rows, rows - row_bytes, row_bytes, out + 1);
    std::uint64_t left = 0;
    for (std::size_t i = 0; i < row_bytes; ++i) {
      const int before = i < first ? 0 : rows[i - first];
      left += static_cast<std::uint64_t>(std::abs(static_cast<std::int8_t>(rows[i] - before)));
    }
    *out = up < left ? kUp : kLeft;
    if (up < left) continue;
    std::memcpy(out + 1, rows, first);
    differences(rows + first, rows, row_bytes - first, out + 1 + first);
  }
}

}  // namespace fastpipe
