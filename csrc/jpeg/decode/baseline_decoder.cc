#include "jpeg/decode/baseline_decoder.h"

#include <algorithm>
#include <cstring>

#include "base/at_least.h"

namespace fastpipe {

namespace {

constexpr std::size_t kUnstuffSlack = 64;

}  // namespace

bool BaselineDecoder::open(const ParsedHeader& header, const RestartMap& map, const std::uint8_t* readable_end) {
  header_ = &header;
  map_ = &map;
  readable_end_ = readable_end;
  unstuff_ = best_unstuff();
  McuLayout layout;
  layout.across[0] = header.across;
  layout.down[0] = header.down;
  picture_ = {header.size, header.components, header.across, header.down, {}};
  for (int c = 0; c < header.components; ++c) {
    const auto component = static_cast<std::size_t>(c);
    picture_.quant[component] = header.tables.quant[header.tables.quant_of[component]].data();
    for (int row = 0; row < layout.down[component]; ++row) {
      for (int column = 0; column < layout.across[component]; ++column) {
        layout.blocks[static_cast<std::size_t>(layout.count++)] = {c, column, row};
      }
    }
  }
  return entropy_.build(layout, header.tables, header.components);
}

bool BaselineDecoder::decode(const CropRows* crops, std::size_t count) {
  const bool good = strips_.decode(picture_, crops, count, this);
  give_back_if_giant(&stream_bytes_);
  return good;
}

// Tiles are read from their beginning; without tiles, all that comes before.
int BaselineDecoder::first_read(int left) const {
  const int interval = header_->interval;
  return interval == 0 ? 0 : left / interval * interval;
}

// Two streams at once need two intervals: where a row has but one, two rows.
int BaselineDecoder::begin(const StripWindow& all) {
  next_mcu_ = 0;
  whole_scan_ = {};
  const int interval = header_->interval;
  return interval > 0 && all.left / interval == (all.right - 1) / interval ? 2 : 1;
}

bool BaselineDecoder::read(const StripWindow& strip, const std::array<CoefficientRows, kMostComponents>& to) {
  for (std::size_t c = 0; c < static_cast<std::size_t>(header_->components) && to[c].first != nullptr; ++c) {
    const int rows = (strip.bottom - strip.top) * (c == 0 ? header_->down : 1);
    const int blocks = (strip.right - strip.left) * (c == 0 ? header_->across : 1);
    const auto pairs = static_cast<std::size_t>(ceil_div(blocks, 2));
    for (int row = 0; row < rows; ++row) {
      std::memset(to[c].block(row, 0), 0, pairs * CoefficientRows::kPairStride * sizeof(std::int16_t));
    }
  }
  return header_->interval > 0 ? read_tiles(strip, to) : read_without_markers(strip, to);
}

bool BaselineDecoder::read_tiles(const StripWindow& strip, const std::array<CoefficientRows, kMostComponents>& to) {
  const int interval = header_->interval;
  const int tiles_per_row = picture_.mcus_per_row() / interval;
  intervals_.clear();
  runs_.clear();
  std::size_t bytes = BitStream::kReadBeyond;
  for (int row = strip.top; row < strip.bottom; ++row) {
    for (int tile = strip.left / interval; tile * interval < strip.right; ++tile) {
      const int start = tile * interval, first = std::max(start, strip.left);
      const int end = std::min(start + interval, strip.right);
      intervals_.push_back(static_cast<std::size_t>(row) * tiles_per_row + tile);
      runs_.push_back({{}, {}, first - start, end - first, row - strip.top, first - strip.left});
      bytes += room(intervals_.back());
    }
  }
  std::uint8_t* memory = at_least(&stream_bytes_, bytes);
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    if (!open(intervals_[i], memory, &runs_[i].stream)) return false;
    memory += room(intervals_[i]);
  }
  if (!entropy_.read(runs_.data(), runs_.size(), to)) return false;
  return std::all_of(runs_.begin(), runs_.end(),
                     [interval](const McuRun& run) { return run.stream.well_read(run.skip + run.take == interval); });
}

bool BaselineDecoder::read_without_markers(const StripWindow& strip,
                                           const std::array<CoefficientRows, kMostComponents>& to) {
  if (next_mcu_ == 0) {
    std::uint8_t* const memory = at_least(&stream_bytes_, room(0) + BitStream::kReadBeyond);
    if (!open(0, memory, &whole_scan_.stream)) return false;
  }
  for (int row = strip.top; row < strip.bottom; ++row) {
    whole_scan_.skip = row * picture_.mcus_per_row() + strip.left - next_mcu_;
    whole_scan_.take = strip.right - strip.left;
    whole_scan_.row = row - strip.top;
    if (!entropy_.read(&whole_scan_, 1, to)) return false;
    next_mcu_ = row * picture_.mcus_per_row() + strip.right;
  }
  return whole_scan_.stream.well_read(next_mcu_ == picture_.mcus_per_row() * picture_.mcu_rows());
}

std::size_t BaselineDecoder::room(std::size_t interval) const {
  return static_cast<std::size_t>(map_->end(interval) - map_->begin(interval)) + kUnstuffSlack;
}

bool BaselineDecoder::open(std::size_t interval, std::uint8_t* memory, BitStream* stream) const {
  const std::uint8_t* const end = unstuff_(map_->begin(interval), map_->end(interval), readable_end_, memory);
  stream->next = memory;
  stream->end = end;
  return end != nullptr;
}

}  // namespace fastpipe
