#include "coefficients/mcu_rows.h"

#include <algorithm>

#include "base/at_least.h"

namespace fastpipe {

bool McuRows::read(const FpcHeader& header, const std::uint8_t* data, int mcu_row, int left, int right,
                   const BlockKernels& kernels, const std::array<CoefficientRows, kMostComponents>& to) {
  const OutputHeader& frame = header.frame;
  const std::uint8_t* at = data + header.row(mcu_row);
  const std::uint8_t* const end = data + header.row(mcu_row + 1);
  for (std::size_t c = 0; c < frame.components; ++c) {
    if (to[c].first == nullptr) return true;
    const int across = frame.across(c), down = frame.down(c);
    const Size real = frame.blocks(c);
    for (int y = 0; y < down; ++y) {
      std::int16_t* const out = to[c].block(y, 0);
      if (mcu_row * down + y >= real.height) {
        std::fill_n(out, static_cast<std::ptrdiff_t>(to[c].pairs) * CoefficientRows::kPairStride, std::int16_t{0});
        continue;
      }
      BlockRow row;
      if (!row.find(at, end, real.width)) return false;
      at = row.end;
      if (!read_blocks(row, left * across, std::min(right * across, real.width), kernels, out, to[c].pairs)) {
        return false;
      }
    }
  }
  return at == end;
}

bool McuRows::read_blocks(const BlockRow& row, int first, int end, const BlockKernels& kernels, std::int16_t* to,
                          int pairs) {
  std::int16_t* const dc = at_least(&dc_, static_cast<std::size_t>(end));
  row.read_dc(end, dc);
  const int count = end - first, filled = (count + 1) / 2;
  std::fill(to + static_cast<std::ptrdiff_t>(filled) * CoefficientRows::kPairStride,
            to + static_cast<std::ptrdiff_t>(pairs) * CoefficientRows::kPairStride, std::int16_t{0});
  return kernels.read(row, row.payload + row.bytes_before(first), first, count, dc + first, to);
}

}  // namespace fastpipe
