#include "jpeg/decode/entropy.h"

#include <algorithm>

#include "jpeg/zigzag.h"

namespace fastpipe {
namespace {

constexpr unsigned kLastPosition = 63;

// Zigzag order -> position in a pair of blocks; coefficients beyond the last go after the pair, wherever an advance
// leads.
struct Zigzag {
  std::uint8_t position[256];

  constexpr Zigzag() : position() {
    for (std::size_t i = 0; i < 256; ++i) {
      position[i] =
          i < 64 ? static_cast<std::uint8_t>(kZigzagToRows[i] / 8 * 16 + kZigzagToRows[i] % 8) : kPairCoefficients;
    }
  }
};
constexpr Zigzag kZigzag;

// One coefficient, looked up before the bits are topped up (there are enough), so that the two happen side by side.
inline void read_ac(BitStream& stream, const AcTable& table, unsigned* at, std::int16_t* block) {
  const AcTable::Entry entry = table.entry(stream.bits);
  refill(stream);
  drop(stream, entry & 0xFF);
  *at += entry >> 8 & 0xFF;
  block[kZigzag.position[*at]] = static_cast<std::int16_t>(entry >> 16);
}

// A coefficient that the lookup does not hold. False where there is none such.
bool read_long_ac(BitStream& stream, const AcTable& table, unsigned* at, std::int16_t* block) {
  refill(stream);
  const auto found = table.codes().find(stream.bits, static_cast<int>(table.entry(stream.bits) >> 16));
  if (found.length == 0) return false;
  const int run = found.symbol >> 4, value_bits = found.symbol & 15;
  if (value_bits == 0 && run != 15) {
    *at = AcTable::kEndOfBlock;
  } else {
    *at += static_cast<unsigned>(run) + 1;
    if (*at > kLastPosition) return false;
    block[kZigzag.position[*at]] = static_cast<std::int16_t>(value_of(stream.bits << found.length, value_bits));
  }
  drop(stream, static_cast<unsigned>(found.length + value_bits));
  return true;
}

}  // namespace

// One of the two streams that are read side by side, in the middle of a block.
struct EntropyDecoder::Lane {
  enum class State { in_block, run_done, error };

  const EntropyDecoder& decoder;
  const std::array<CoefficientRows, kMostComponents>& to;
  BitStream stream;
  unsigned at = 0;  // where in the zigzag the last coefficient lies
  std::int16_t* block = nullptr;
  const AcTable* ac = nullptr;
  McuRun* run = nullptr;
  int mcu = 0;                                         // of the run
  int index = 0;                                       // of the block in the MCU
  std::int16_t nowhere[CoefficientRows::kPairStride];  // what is skipped

  Lane(const EntropyDecoder& reader, const std::array<CoefficientRows, kMostComponents>& places)
      : decoder(reader), to(places) {}

  bool begin(McuRun* next_run) {
    run = next_run;
    stream = run->stream;
    mcu = index = 0;
    return begin_block();
  }

  bool begin_block() {
    const McuLayout::Block& where = decoder.layout_.blocks[static_cast<std::size_t>(index)];
    const auto component = static_cast<std::size_t>(where.component);
    block = nowhere;
    if (mcu >= run->skip) {
      const int column = (run->column + mcu - run->skip) * decoder.layout_.across[component] + where.column;
      block = to[component].block(run->row * decoder.layout_.down[component] + where.row, column);
    }
    at = 0;
    ac = decoder.ac_of_[component];
    int* const dc = &run->dc[component];
    const bool good = decoder.dc_of_[component]->read(stream, dc);
    block[0] = static_cast<std::int16_t>(*dc);
    return good;
  }

  // Once `at` is at the last position or beyond: decodes what the lookup could not, or goes to the next block.
  State advance() {
    if (at >= AcTable::kBeyond) {
      at -= AcTable::kBeyond;
      if (!read_long_ac(stream, *ac, &at, block)) return State::error;
      if (at < kLastPosition) return State::in_block;
    }
    if (at > kLastPosition && at < AcTable::kEndOfBlock) return State::error;
    if (++index == decoder.layout_.count) {
      index = 0;
      if (stream.next > stream.end + sizeof stream.bits) return State::error;
      if (++mcu == run->skip + run->take) {
        run->stream = stream;
        return State::run_done;
      }
    }
    return begin_block() ? State::in_block : State::error;
  }
};

bool EntropyDecoder::build(const McuLayout& layout, const ScanTables& tables, int components) {
  layout_ = layout;
  unsigned dc_built = 0, ac_built = 0;
  for (std::size_t c = 0; c < static_cast<std::size_t>(components); ++c) {
    const std::size_t dc = tables.dc_of[c], ac = tables.ac_of[c];
    if (dc >= ScanTables::kMost || ac >= ScanTables::kMost) return false;
    if (tables.dc[dc].counts == nullptr || tables.ac[ac].counts == nullptr) return false;
    if ((dc_built >> dc & 1) == 0 && !dc_[dc].build(tables.dc[dc])) return false;
    if ((ac_built >> ac & 1) == 0 && !ac_[ac].build(tables.ac[ac])) return false;
    dc_built |= 1u << dc;
    ac_built |= 1u << ac;
    dc_of_[c] = &dc_[dc];
    ac_of_[c] = &ac_[ac];
  }
  return true;
}

// Note [two lanes]
// Each symbol's length must be known before the next one is looked up: some nine cycles in which the core has little to
// do. So two streams are read in turn, each in its own block: when one ends a run, it takes the next. The gain is
// small: a crop took 307 us with one stream and takes 300 us with two (docs/performance.md).
FASTPIPE_BMI2 void EntropyDecoder::step_both(Lane* a, Lane* b) {
  // In registers.
  BitStream stream_a = a->stream, stream_b = b->stream;
  unsigned at_a = a->at, at_b = b->at;
  std::int16_t *const block_a = a->block, *const block_b = b->block;
  const AcTable &ac_a = *a->ac, &ac_b = *b->ac;
  do {
    read_ac(stream_a, ac_a, &at_a, block_a);
    read_ac(stream_b, ac_b, &at_b, block_b);
  } while (at_a < kLastPosition && at_b < kLastPosition);
  a->stream = stream_a;
  b->stream = stream_b;
  a->at = at_a;
  b->at = at_b;
}

FASTPIPE_BMI2 void EntropyDecoder::step_alone(Lane* lane) {
  BitStream stream = lane->stream;
  unsigned at = lane->at;
  do {
    read_ac(stream, *lane->ac, &at, lane->block);
  } while (at < kLastPosition);
  lane->stream = stream;
  lane->at = at;
}

FASTPIPE_BMI2 bool EntropyDecoder::read(McuRun* runs, std::size_t count,
                                        const std::array<CoefficientRows, kMostComponents>& to) const {
  if (count == 0) return true;
  Lane lanes[2] = {{*this, to}, {*this, to}};
  std::size_t next = 0;
  for (Lane& lane : lanes) {
    if (next < count && !lane.begin(&runs[next++])) return false;
  }
  Lane* rest = &lanes[0];
  for (bool both = count > 1; both;) {
    step_both(&lanes[0], &lanes[1]);
    for (int i = 0; i < 2; ++i) {
      if (lanes[i].at < kLastPosition) continue;
      const Lane::State state = lanes[i].advance();
      if (state == Lane::State::error) return false;
      if (state == Lane::State::in_block) continue;
      if (next < count) {
        if (!lanes[i].begin(&runs[next++])) return false;
      } else {
        rest = &lanes[1 - i];
        both = false;
        break;
      }
    }
  }
  while (true) {
    if (rest->at < kLastPosition) step_alone(rest);
    const Lane::State state = rest->advance();
    if (state != Lane::State::in_block) return state == Lane::State::run_done;
  }
}

}  // namespace fastpipe
