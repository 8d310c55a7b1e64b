#include "png/unfilter.h"

#include <cstdlib>
#include <cstring>

namespace fastpipe {
namespace {

// A pixel's bytes as numbers; GCC and Clang make vector instructions of it, the machine's own.
using Pixel = std::int16_t __attribute__((vector_size(16)));
using Bytes = std::uint8_t __attribute__((vector_size(8)));

Pixel load(const std::uint8_t* from, std::size_t count) {
  Bytes bytes = {};
  std::memcpy(&bytes, from, count);
  return __builtin_convertvector(bytes, Pixel);
}

Pixel magnitude(Pixel value) {
  const Pixel sign = value >> 15;
  return (value ^ sign) - sign;
}

struct Left {
  static Pixel predict(Pixel left, Pixel, Pixel) { return left; }
  static int predict(int left, int, int) { return left; }
};

struct Average {
  static Pixel predict(Pixel left, Pixel up, Pixel) { return (left + up) >> 1; }
  static int predict(int left, int up, int) { return (left + up) >> 1; }
};

// The neighbour that is nearest to left + up - corner; of equals the first.
struct Paeth {
  static Pixel predict(Pixel left, Pixel up, Pixel corner) {
    const Pixel down = up - corner, across = left - corner;
    const Pixel to_left = magnitude(down), to_up = magnitude(across), to_corner = magnitude(down + across);
    const Pixel other = to_up <= to_corner ? up : corner;
    return (to_left <= to_up) & (to_left <= to_corner) ? left : other;
  }
  static int predict(int left, int up, int corner) {
    const int to_left = std::abs(up - corner), to_up = std::abs(left - corner);
    const int to_corner = std::abs(left + up - 2 * corner);
    if (to_left <= to_up && to_left <= to_corner) return left;
    return to_up <= to_corner ? up : corner;
  }
};

// A pixel depends on the one before it, so it is kept in a register. The last pixel reads no byte behind the row.
template <typename Filter, std::size_t Step>
void by_pixel(std::uint8_t* row, const std::uint8_t* above, std::size_t bytes) {
  constexpr std::size_t kLoaded = Step == 3 ? 4 : Step == 6 ? 8 : Step;
  Pixel left = {}, corner = {};
  std::size_t i = 0;
  const auto pixel = [&](std::size_t loaded) {
    const Pixel up = load(above + i, loaded);
    left = (load(row + i, loaded) + Filter::predict(left, up, corner)) & 255;
    corner = up;
    const Bytes out = __builtin_convertvector(left, Bytes);
    std::memcpy(row + i, &out, Step);
    i += Step;
  };
  while (i + kLoaded <= bytes) pixel(kLoaded);
  if (i < bytes) pixel(Step);
}

template <typename Filter>
void by_byte(std::uint8_t* row, const std::uint8_t* above, std::size_t bytes, std::size_t step) {
  for (std::size_t i = 0; i < bytes; ++i) {
    const bool first = i < step;
    const int predicted = Filter::predict(first ? 0 : row[i - step], above[i], first ? 0 : above[i - step]);
    row[i] = static_cast<std::uint8_t>(row[i] + predicted);
  }
}

template <typename Filter>
void undo(std::uint8_t* row, const std::uint8_t* above, std::size_t bytes, std::size_t step) {
  switch (step) {
    case 3:
      return by_pixel<Filter, 3>(row, above, bytes);
    case 4:
      return by_pixel<Filter, 4>(row, above, bytes);
    case 6:
      return by_pixel<Filter, 6>(row, above, bytes);
    case 8:
      return by_pixel<Filter, 8>(row, above, bytes);
    default:
      return by_byte<Filter>(row, above, bytes, step);
  }
}

}  // namespace

void unfilter(int filter, std::uint8_t* row, const std::uint8_t* above, std::size_t bytes, std::size_t step) {
  switch (filter) {
    case 1:
      return undo<Left>(row, above, bytes, step);
    case 2:
      for (std::size_t i = 0; i < bytes; ++i) row[i] = static_cast<std::uint8_t>(row[i] + above[i]);
      return;
    case 3:
      return undo<Average>(row, above, bytes, step);
    case 4:
      return undo<Paeth>(row, above, bytes, step);
    default:
      return;
  }
}

}  // namespace fastpipe
