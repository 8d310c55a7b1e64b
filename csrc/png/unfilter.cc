#include "png/unfilter.h"

#include <cstdlib>

namespace fastpipe {
namespace {

std::uint8_t byte(int value) { return static_cast<std::uint8_t>(value); }

int average(int left, int up, int) { return (left + up) / 2; }

// The neighbour that is nearest to left + up - corner; of equals the first.
int paeth(int left, int up, int corner) {
  const int to_left = std::abs(up - corner), to_up = std::abs(left - corner);
  const int to_corner = std::abs(left + up - 2 * corner);
  if (to_left <= to_up && to_left <= to_corner) return left;
  return to_up <= to_corner ? up : corner;
}

template <int (*Predict)(int, int, int), std::size_t Step>
void predicted(std::uint8_t* row, const std::uint8_t* above, std::size_t bytes) {
  for (std::size_t i = 0; i < Step && i < bytes; ++i) row[i] = byte(row[i] + Predict(0, above[i], 0));
  for (std::size_t i = Step; i < bytes; ++i) {
    row[i] = byte(row[i] + Predict(row[i - Step], above[i], above[i - Step]));
  }
}

int left_of(int left, int, int) { return left; }

template <std::size_t Step>
void undo(int filter, std::uint8_t* row, const std::uint8_t* above, std::size_t bytes) {
  switch (filter) {
    case 1:
      return predicted<left_of, Step>(row, above, bytes);
    case 2:
      for (std::size_t i = 0; i < bytes; ++i) row[i] = byte(row[i] + above[i]);
      return;
    case 3:
      return predicted<average, Step>(row, above, bytes);
    case 4:
      return predicted<paeth, Step>(row, above, bytes);
    default:
      return;
  }
}

}  // namespace

void unfilter(int filter, std::uint8_t* row, const std::uint8_t* above, std::size_t bytes, std::size_t step) {
  switch (step) {
    case 1:
      return undo<1>(filter, row, above, bytes);
    case 2:
      return undo<2>(filter, row, above, bytes);
    case 3:
      return undo<3>(filter, row, above, bytes);
    case 4:
      return undo<4>(filter, row, above, bytes);
    case 6:
      return undo<6>(filter, row, above, bytes);
    default:
      return undo<8>(filter, row, above, bytes);
  }
}

}  // namespace fastpipe
