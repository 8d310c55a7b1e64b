#include "jpeg/decode/entropy.h"

#include <algorithm>

#include "jpeg/zigzag.h"

namespace fastpipe {
namespace {

constexpr unsigned kLastPosition = 63;

// A bit of a position that says: beyond the block, or no position (CoefficientTable::kBeyond). Positions from
// kEndOfBlock on do not have it.
constexpr unsigned kOdd = 64;

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

}  // namespace

EntropyDecoder::EntropyDecoder() { stop_.fill(CoefficientTable::kBeyond << 8); }

bool EntropyDecoder::build(const McuLayout& layout, const ScanTables& tables, int components) {
  layout_ = layout;
  components_ = static_cast<std::size_t>(components);
  skips_ = false;
  unsigned dc_built = 0, ac_built = 0;
  for (std::size_t c = 0; c < static_cast<std::size_t>(components); ++c) {
    const std::size_t dc = tables.dc_of[c], ac = tables.ac_of[c];
    if (dc >= ScanTables::kMost || ac >= ScanTables::kMost) return false;
    if (tables.dc[dc].counts == nullptr || tables.ac[ac].counts == nullptr) return false;
    if ((dc_built >> dc & 1) == 0 && !dc_[dc].build_dc(tables.dc[dc])) return false;
    if ((ac_built >> ac & 1) == 0 && !ac_[ac].build_ac(tables.ac[ac])) return false;
    dc_built |= 1u << dc;
    ac_built |= 1u << ac;
    dc_of_[c] = &dc_[dc];
    ac_of_[c] = &ac_[ac];
  }
  return true;
}

// Note [places]
// Where a block ends cannot be predicted, so nothing branches on it: where the blocks of some MCUs go is listed before,
// and after each symbol the next table, place and position are chosen by its advance. Only what no lookup holds leaves
// the loop, and the end of the list: behind its last place, a lookup whose entries all do. As a list is short, so is
// what damaged bytes can have read beyond their end: it is looked at after each list.
// DC values are stored as differences first and added up once a list is through. Blocks that are skipped go to memory
// that nobody reads, each one coefficient beyond the last one: the difference stays, and what lies behind it is
// overwritten. Of components that nobody wants, not even the difference is read, and most blocks take one lookup.

inline void EntropyDecoder::read_symbol(Cursor* cursor) {
  // Looked up before the bits are topped up (there are enough), so that the two happen side by side.
  const std::uint64_t bits = cursor->stream.bits;
  const Entry entry = cursor->table[bits >> (64 - CoefficientTable::kLookupBits)];
  refill(cursor->stream);
  drop(cursor->stream, entry & 0xFF);
  cursor->at += entry >> 8 & 0xFF;
  const std::uint64_t value_bits = bits << (entry >> 16 & 63);
  const std::int64_t sign = static_cast<std::int64_t>(~value_bits) >> 63;
  const auto magnitude =
      static_cast<std::int64_t>((value_bits ^ static_cast<std::uint64_t>(sign)) >> 1 >> (entry >> 24 & 63));
  cursor->place->block[kZigzag.position[cursor->at]] = static_cast<std::int16_t>((magnitude ^ sign) - sign);
}

inline void EntropyDecoder::move_on(Cursor* cursor) {
#if defined(__x86_64__)
  const Place* next = cursor->place + 1;
  const Entry* table = cursor->place->ac;
  asm("cmp $63, %[at]\n\t"
      "cmovae %[dc], %[table]\n\t"
      "cmovae %[next], %[place]\n\t"
      "cmovae %[zero], %[at]"
      : [at] "+r"(cursor->at), [table] "+r"(table), [place] "+r"(cursor->place)
      : [dc] "m"(next->dc), [next] "r"(next), [zero] "rm"(0)
      : "cc");
  cursor->table = table;
#else
  const bool ends = cursor->at >= kLastPosition;
  const Entry *const dc = cursor->place[1].dc, *const ac = cursor->place->ac;
  cursor->table = ends ? dc : ac;
  cursor->place += ends;
  cursor->at = ends ? 0 : cursor->at;
#endif
}

// Note [two lanes]
// Each symbol's length must be known before the next one is looked up: some ten cycles in which the core has little to
// do. So two streams are read in turn, each in its own block: when one ends a run, it takes the next.
FASTPIPE_BMI2 void EntropyDecoder::step_both(Lane* a, Lane* b) {
  Cursor first = a->cursor, second = b->cursor;  // in registers
  while (true) {
    read_symbol(&first);
    read_symbol(&second);
    if (((first.at | second.at) & kOdd) != 0) break;
    move_on(&first);
    move_on(&second);
  }
  a->cursor = first;
  b->cursor = second;
}

FASTPIPE_BMI2 void EntropyDecoder::step_alone(Lane* lane) {
  Cursor cursor = lane->cursor;
  while (true) {
    read_symbol(&cursor);
    if ((cursor.at & kOdd) != 0) break;
    move_on(&cursor);
  }
  lane->cursor = cursor;
}

FASTPIPE_BMI2 void EntropyDecoder::begin(McuRun* run, Lane* lane) const {
  lane->run = run;
  lane->cursor.stream = run->stream;
  refill(lane->cursor.stream);
  lane->mcu = 0;
  plan_places(lane);
}

void EntropyDecoder::plan_places(Lane* lane) const {
  const McuRun& run = *lane->run;
  const int end = std::min(run.skip + run.take, lane->mcu + static_cast<int>(kMostPlaces) / layout_.count);
  Place* place = lane->places.data();
  std::int16_t* passed = lane->passed.data();
  for (int mcu = lane->mcu; mcu < end; ++mcu) {
    for (int i = 0; i < layout_.count; ++i) {
      const McuLayout::Block& where = layout_.blocks[static_cast<std::size_t>(i)];
      const auto component = static_cast<std::size_t>(where.component);
      std::int16_t* block;
      const CoefficientTable::Entry* dc = wanted(component) ? dc_of_[component]->entries() : skip_[component].data();
      if (mcu < run.skip || !wanted(component)) {
        block = passed++;
      } else {
        const int column = (run.column + mcu - run.skip) * layout_.across[component] + where.column;
        block = (*to_)[component].block(run.row * layout_.down[component] + where.row, column);
      }
      *place++ = {block, dc, ac_of_[component]->entries(), component};
    }
  }
  *place = {passed, stop_.data(), stop_.data(), 0};
  lane->end = place;
  lane->mcu = end;
  lane->cursor.place = lane->places.data();
  lane->cursor.table = lane->places[0].dc;
  lane->cursor.at = 0;
}

// False where DC values are none that a block can hold.
bool EntropyDecoder::end_places(Lane* lane) const {
  std::array<int, kMostComponents> dc = lane->run->dc;
  int odd = 0;
  for (const Place* place = lane->places.data(); place != lane->end; ++place) {
    if (!wanted(place->component)) continue;
    const int value = dc[place->component] += place->block[0];
    odd |= value ^ static_cast<std::int16_t>(value);
    place->block[0] = static_cast<std::int16_t>(value);
  }
  lane->run->dc = dc;
  return odd == 0;
}

// After the symbol that left the loop, which may be of the other lane.
FASTPIPE_BMI2 EntropyDecoder::State EntropyDecoder::settle(Lane* lane) const {
  Cursor& cursor = lane->cursor;
  if ((cursor.at & kOdd) != 0) {
    if (cursor.at < CoefficientTable::kBeyond) return State::error;
    if (cursor.place == lane->end) {
      if (cursor.stream.next > cursor.stream.end + sizeof cursor.stream.bits || !end_places(lane)) return State::error;
      if (lane->mcu < lane->run->skip + lane->run->take) {
        plan_places(lane);
        return State::in_run;
      }
      lane->run->stream = cursor.stream;
      return State::run_done;
    }
    cursor.at -= CoefficientTable::kBeyond;
    if (!read_beyond(&cursor)) return State::error;
  }
  move_on(&cursor);
  return State::in_run;
}

// A coefficient that the lookup does not hold. False where there is none such.
FASTPIPE_BMI2 bool EntropyDecoder::read_beyond(Cursor* cursor) const {
  const Place& place = *cursor->place;
  const bool is_dc = cursor->table == place.dc;
  const CoefficientTable& table = is_dc ? *dc_of_[place.component] : *ac_of_[place.component];
  BitStream& stream = cursor->stream;
  refill(stream);
  const auto found = table.codes().find(stream.bits, static_cast<int>(table.entry(stream.bits) >> 16));
  if (found.length == 0) return false;
  const int run = is_dc ? 0 : found.symbol >> 4, value_bits = found.symbol & 15;
  if (is_dc) {
    place.block[0] = static_cast<std::int16_t>(value_of(stream.bits << found.length, value_bits));
  } else if (value_bits == 0 && run != 15) {
    cursor->at = CoefficientTable::kEndOfBlock;
  } else {
    cursor->at += static_cast<unsigned>(run) + 1;
    if (cursor->at > kLastPosition) return false;
    place.block[kZigzag.position[cursor->at]] =
        static_cast<std::int16_t>(value_of(stream.bits << found.length, value_bits));
  }
  drop(stream, static_cast<unsigned>(found.length + value_bits));
  return true;
}

bool EntropyDecoder::read(McuRun* runs, std::size_t count, const std::array<CoefficientRows, kMostComponents>& to) {
  to_ = &to;
  for (std::size_t c = 0; c < components_ && !skips_; ++c) {
    if (!wanted(c)) CoefficientTable::skip(*dc_of_[c], *ac_of_[c], &skip_[c]);
  }
  skips_ = true;
  McuRun* next = runs;
  McuRun* const end = runs + count;
  // Goes on with the next run where one is done; run_done where there is none.
  const auto go_on = [&](Lane* lane) {
    const State state = settle(lane);
    if (state != State::run_done || next == end) return state;
    begin(next++, lane);
    return State::in_run;
  };
  Lane *a = lanes_.data(), *b = a + 1;
  if (count == 0) return true;
  begin(next++, a);
  if (next != end) {
    begin(next++, b);
    while (true) {
      step_both(a, b);
      const State first = go_on(a), second = go_on(b);
      if (first == State::error || second == State::error) return false;
      if (first == State::in_run && second == State::in_run) continue;
      if (first == second) return true;
      if (first == State::run_done) a = b;
      break;
    }
  }
  while (true) {
    step_alone(a);
    const State state = settle(a);
    if (state != State::in_run) return state == State::run_done;
  }
}

}  // namespace fastpipe
