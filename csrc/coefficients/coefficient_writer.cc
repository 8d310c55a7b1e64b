#include "coefficients/coefficient_writer.h"

#include <algorithm>
#include <cstdint>

#include "base/xxh3.h"
#include "coefficients/fpc_header.h"

namespace fastpipe {
namespace {

constexpr int kLeastDc = -1024, kMostDc = 1023;  // means of 8-bit pixels, at the finest step

}  // namespace

Status CoefficientWriter::write(const OutputHeader& header, const std::vector<Segment>& segments,
                                const TokenList& tokens, const JpegWriter& jpeg) {
  high_dc_ = false;
  FpcHeaderWriter head(&bytes_);
  head.begin(header);
  const BlockRecord* block = tokens.blocks.data();
  const std::int16_t* values = tokens.values.data();
  const int rows = header.mcus().height;
  for (int y = 0; y < rows; ++y) {
    if (!add_mcu_row(header, y, &block, &values)) {
      clear();
      return error(Code::unsupported, "a block's mean is beyond 16 bits, which no encoder makes");
    }
    for (std::size_t c = 0; c < header.components; ++c) {
      const int down = header.down(c), stored = std::min(down, header.blocks(c).height - y * down);
      for (int row = 0; row < stored; ++row) rows_[c][static_cast<std::size_t>(row)].append_to(&bytes_);
    }
    head.end_row();
  }
  head.finish(segments, high_dc_, xxh3_64(jpeg.data(), jpeg.size()));
  return {};
}

bool CoefficientWriter::add_mcu_row(const OutputHeader& header, int mcu_y, const BlockRecord** next,
                                    const std::int16_t** values) {
  struct Place {
    BlockRowWriter* row;
    int column, across, columns;
  };
  std::vector<Place> places;  // of the blocks of an MCU that are not below the picture
  for (std::size_t c = 0; c < header.components; ++c) {
    const Size real = header.blocks(c);
    const int across = header.across(c), down = header.down(c);
    for (int y = 0; y < down && mcu_y * down + y < real.height; ++y) {
      BlockRowWriter& row = rows_[c][static_cast<std::size_t>(y)];
      row.begin(real.width);
      for (int x = 0; x < across; ++x) places.push_back({&row, x, across, real.width});
    }
  }
  const BlockRecord* block = *next;
  const std::int16_t* value = *values;
  bool good = true;
  const int mcus = header.mcus().width;
  for (int mcu_x = 0; mcu_x < mcus; ++mcu_x) {
    for (const Place& place : places) {
      if (mcu_x * place.across + place.column >= place.columns) continue;
      good &= block->dc == static_cast<std::int16_t>(block->dc);
      high_dc_ |= block->dc < kLeastDc || block->dc > kMostDc;
      place.row->add(*block, value);
      value += __builtin_popcountll(block->mask);
      ++block;
    }
  }
  *next = block;
  *values = value;
  return good;
}

}  // namespace fastpipe
