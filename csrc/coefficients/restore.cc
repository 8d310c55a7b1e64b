#include "coefficients/restore.h"

#include <algorithm>
#include <array>

#include "base/at_least.h"
#include "base/xxh3.h"
#include "jpeg/transcode/block_tokens.h"

namespace fastpipe {
namespace {

std::array<std::int16_t, 64> copy_of(const CoefficientRows& rows, int row, int column) {
  std::array<std::int16_t, 64> block;
  const std::int16_t* const from = rows.block(row, column);
  for (std::size_t y = 0; y < 8; ++y) std::copy_n(from + 16 * y, 8, block.begin() + 8 * y);
  return block;
}

}  // namespace

Status JpegRestorer::whole(const FpcHeader& header, const std::uint8_t* data, const BlockKernels& kernels) {
  std::vector<Segment> segments;
  if (!header.read_segments(data, &segments)) {
    return error(Code::coefficients_damaged, "%s", "the segments do not fit");
  }
  const Size mcus = header.frame.mcus();
  const TileRange all = {mcus.width, 0, mcus.width, 0, mcus.height};
  const Status status = write(header, data, all, header.frame, segments, kernels);
  if (!status.ok() || xxh3_64(jpeg(), jpeg_bytes()) == header.xxh3_64) return status;
  return error(Code::coefficients_damaged, "%s", "they make another JPEG than when they were packed");
}

Status JpegRestorer::part(const FpcHeader& header, const std::uint8_t* data, const TileRange& mcus, Size size,
                          const BlockKernels& kernels) {
  OutputHeader frame = header.frame;
  const bool whole = size.width == frame.size.width && size.height == frame.size.height;
  frame.size = size;
  if (!whole) frame.interval = 0;
  return write(header, data, mcus, frame, {}, kernels);
}

Status JpegRestorer::write(const FpcHeader& header, const std::uint8_t* data, const TileRange& mcus,
                           const OutputHeader& frame, const std::vector<Segment>& segments,
                           const BlockKernels& kernels) {
  std::array<CoefficientRows, kMostComponents> rows;
  std::size_t needed = 0, mcu_blocks = 0;
  for (std::size_t c = 0; c < frame.components; ++c) {
    rows[c].pairs = (mcus.columns * frame.across(c) + 1) / 2;
    needed += static_cast<std::size_t>(rows[c].pairs * frame.down(c)) * CoefficientRows::kPairStride;
    mcu_blocks += static_cast<std::size_t>(frame.across(c) * frame.down(c));
  }
  std::int16_t* memory = aligned_at_least(&coefficients_, needed);
  for (std::size_t c = 0; c < frame.components; ++c) {
    rows[c].first = memory;
    memory += static_cast<std::ptrdiff_t>(rows[c].pairs) * frame.down(c) * CoefficientRows::kPairStride;
  }

  tokens_.clear();
  BlockTokens blocks(frame.interval, &tokens_);
  bool fits = true;
  for (int y = mcus.row; y < mcus.row + mcus.rows; ++y) {
    if (!rows_.read(header, data, y, mcus.column, mcus.column + mcus.columns, kernels, rows)) {
      return error(Code::coefficients_damaged, "in MCU row %d", y);
    }
    for (int x = mcus.column; x < mcus.column + mcus.columns; ++x) {
      blocks.begin_mcu(mcu_blocks);
      for (std::size_t c = 0; c < frame.components; ++c) {
        const int across = frame.across(c), down = frame.down(c);
        const unsigned pair = frame.component[c].pair;
        const Size real = header.frame.blocks(c);
        for (int row = 0; row < down; ++row) {
          for (int column = 0; column < across; ++column) {
            if (y * down + row >= real.height || x * across + column >= real.width) {
              blocks.add_dummy(pair);
            } else {
              const auto block = copy_of(rows[c], row, (x - mcus.column) * across + column);
              fits &= blocks.add(block.data(), c, pair);
            }
          }
        }
      }
    }
  }
  blocks.end();
  if (!fits) return error(Code::coefficients_damaged, "%s", "a value is larger than a JPEG holds");
  writer_.write(frame, segments, tokens_);
  return {};
}

void JpegRestorer::give_back() {
  tokens_.clear();
  give_back_if_giant(&coefficients_);
}

}  // namespace fastpipe
