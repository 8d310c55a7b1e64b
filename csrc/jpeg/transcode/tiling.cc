#include "jpeg/transcode/tiling.h"

#include <algorithm>

namespace fastpipe {
namespace {

constexpr double kTileBytes = 3.5;  // mean over photos of quality 75 to 96
constexpr double kMostAdded = 1.0 / 64;

}  // namespace

int restart_interval(const OutputHeader& header, int target_width, std::size_t scan_bytes) {
  if (target_width == 0) return 0;
  const auto [mcus_per_row, mcu_rows] = header.mcus();
  const int mcu_width = header.mcu_size().width;
  const double budget = kMostAdded * static_cast<double>(scan_bytes);
  int best = 0;
  double best_ratio = 0;
  for (int interval = 1; interval <= mcus_per_row; ++interval) {
    if (mcus_per_row % interval != 0) continue;
    const int tiles_per_row = mcus_per_row / interval;
    const double width = static_cast<double>(interval) * mcu_width;
    const double target = target_width;
    const bool whole_row = interval == mcus_per_row;
    if (!whole_row && 3 * width < 2 * target) continue;
    if (kTileBytes * tiles_per_row * mcu_rows > budget) continue;
    const double ratio = std::max(width / target, target / width);
    if (best == 0 || ratio < best_ratio) {
      best = interval;
      best_ratio = ratio;
    }
  }
  return best == mcus_per_row && mcu_rows == 1 ? 0 : best;
}

}  // namespace fastpipe
