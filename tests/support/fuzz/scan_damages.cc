// What is done to entropy-coded bytes, restart markers and tables.
#include <algorithm>

#include "jpeg/markers.h"
#include "mutate.h"

namespace fuzz {
namespace {

using namespace fastpipe;
using Seeds = std::vector<Bytes>;

// A place in the entropy-coded bytes; 0 where there are none.
std::size_t place(Random* random, const Layout& layout) {
  if (layout.scans.empty()) return 0;
  const Range scan = layout.scans[random->below(layout.scans.size())];
  return scan.size() == 0 ? 0 : scan.begin + random->below(scan.size());
}

// Markers are neither made nor unmade, so that all else stays where it is.
void put(Bytes* jpeg, std::size_t at, std::uint8_t value) {
  const bool escaped = at > 0 && (*jpeg)[at - 1] == 0xFF;
  if (at != 0 && !escaped && (*jpeg)[at] != 0xFF && value != 0xFF) (*jpeg)[at] = value;
}

void flip_bits(Random* random, const Seeds&, Bytes* jpeg) {
  const Layout layout = layout_of(*jpeg);
  for (int left = 1 + random->below(8); left > 0; --left) {
    const std::size_t at = place(random, layout);
    if (at != 0) put(jpeg, at, static_cast<std::uint8_t>((*jpeg)[at] ^ 1 << random->below(8)));
  }
}

void overwrite(Random* random, const Seeds&, Bytes* jpeg) {
  const std::size_t first = place(random, layout_of(*jpeg));
  const std::size_t end = std::min(first + 1 + random->below(std::size_t{40}), jpeg->size());
  const bool same = random->one_in(2);
  const std::uint8_t value = random->byte();
  for (std::size_t at = first; first != 0 && at < end; ++at) put(jpeg, at, same ? value : random->byte());
}

void flip_any_bit(Random* random, const Seeds&, Bytes* jpeg) {
  const std::size_t at = place(random, layout_of(*jpeg));
  if (at != 0) (*jpeg)[at] = static_cast<std::uint8_t>((*jpeg)[at] ^ 1 << random->below(8));
}

void insert_bytes(Random* random, const Seeds&, Bytes* jpeg) {
  const std::size_t at = place(random, layout_of(*jpeg));
  Bytes more(1 + random->below(std::size_t{6}));
  for (std::uint8_t& value : more) value = random->byte();
  if (at != 0) insert(jpeg, at, more);
}

void erase_bytes(Random* random, const Seeds&, Bytes* jpeg) {
  const std::size_t at = place(random, layout_of(*jpeg));
  if (at != 0) erase(jpeg, {at, std::min(at + 1 + random->below(std::size_t{6}), jpeg->size())});
}

void remove_restart(Random* random, const Seeds&, Bytes* jpeg) {
  const Layout layout = layout_of(*jpeg);
  if (layout.restarts.empty()) return;
  const std::size_t at = layout.restarts[random->below(layout.restarts.size())];
  erase(jpeg, {at, at + 2});
}

void double_restart(Random* random, const Seeds&, Bytes* jpeg) {
  const Layout layout = layout_of(*jpeg);
  if (layout.restarts.empty()) return;
  const std::size_t at = layout.restarts[random->below(layout.restarts.size())];
  insert(jpeg, at, {0xFF, (*jpeg)[at + 1]});
}

void misnumber_restart(Random* random, const Seeds&, Bytes* jpeg) {
  const Layout layout = layout_of(*jpeg);
  if (layout.restarts.empty()) return;
  const std::size_t at = layout.restarts[random->below(layout.restarts.size())];
  (*jpeg)[at + 1] = static_cast<std::uint8_t>(marker::kRestart + random->below(8));
}

void renumber(Bytes* jpeg, std::size_t from, int number) {
  for (const std::size_t at : layout_of(*jpeg).restarts) {
    if (at >= from) (*jpeg)[at + 1] = static_cast<std::uint8_t>(marker::kRestart + number++ % 8);
  }
}

void shift_numbers(Random* random, const Seeds&, Bytes* jpeg) {
  const Layout layout = layout_of(*jpeg);
  if (layout.restarts.empty()) return;
  const std::size_t from = layout.restarts[random->below(layout.restarts.size())];
  renumber(jpeg, from, random->below(8));
}

// Takes one interval out, or doubles it; what follows may be numbered as if nothing were amiss.
void change_count(Random* random, const Seeds&, Bytes* jpeg) {
  const Layout layout = layout_of(*jpeg);
  if (layout.restarts.size() < 2) return;
  const std::size_t which = random->below(layout.restarts.size() - 1);
  const Range interval = {layout.restarts[which], layout.restarts[which + 1]};
  if (random->one_in(2)) {
    erase(jpeg, interval);
  } else {
    insert(jpeg, interval.begin, copy(*jpeg, interval));
  }
  if (random->one_in(2)) renumber(jpeg, 0, 0);
}

void swap_intervals(Random* random, const Seeds&, Bytes* jpeg) {
  const Layout layout = layout_of(*jpeg);
  if (layout.restarts.size() < 3) return;
  const std::size_t which = random->below(layout.restarts.size() - 2);
  const auto iterator = [&](std::size_t i) {
    return jpeg->begin() + static_cast<std::ptrdiff_t>(layout.restarts[which + i]);
  };
  std::rotate(iterator(0), iterator(1), iterator(2));
  if (random->one_in(2)) renumber(jpeg, 0, 0);
}

void change_interval(Random* random, const Seeds&, Bytes* jpeg) {
  const Layout layout = layout_of(*jpeg);
  const Segment* const segment = layout.first(marker::kRestartInterval);
  const std::size_t at = segment != nullptr ? segment->begin : 2;
  if (jpeg->size() < at) return;
  if (segment == nullptr) insert(jpeg, at, {0xFF, marker::kRestartInterval, 0, 4, 0, 0});
  const int values[] = {0, 1, 2, 3, 4, 7, 0xFFFF, random->below(0x10000)};
  const int value = values[random->below(8)];
  if (at + 6 > jpeg->size()) return;
  (*jpeg)[at + 4] = static_cast<std::uint8_t>(value >> 8);
  (*jpeg)[at + 5] = static_cast<std::uint8_t>(value);
}

// One byte of a segment of one kind.
void change_table(Random* random, int code, Bytes* jpeg) {
  const Layout layout = layout_of(*jpeg);
  std::vector<Segment> tables;
  std::copy_if(layout.segments.begin(), layout.segments.end(), std::back_inserter(tables),
               [code](const Segment& segment) { return segment.code == code && segment.size() > 5; });
  if (tables.empty()) return;
  const Segment& table = tables[random->below(tables.size())];
  (*jpeg)[table.begin + 5 + random->below(table.size() - 5)] = random->one_in(2) ? 0xFF : random->byte();
}

void change_steps(Random* random, const Seeds&, Bytes* jpeg) { change_table(random, marker::kQuantTables, jpeg); }
void change_codes(Random* random, const Seeds&, Bytes* jpeg) { change_table(random, marker::kHuffmanTables, jpeg); }

}  // namespace

const std::vector<Damage>& scan_damages() {
  static const std::vector<Damage> all = {
      {"flip bits", flip_bits},
      {"overwrite", overwrite},
      {"flip any bit", flip_any_bit},
      {"insert bytes", insert_bytes},
      {"erase bytes", erase_bytes},
      {"remove a restart marker", remove_restart},
      {"double a restart marker", double_restart},
      {"misnumber a restart marker", misnumber_restart},
      {"shift the numbers", shift_numbers},
      {"another number of intervals", change_count},
      {"swap two intervals", swap_intervals},
      {"another restart interval", change_interval},
      {"quantisation steps", change_steps},
      {"Huffman codes", change_codes},
  };
  return all;
}

}  // namespace fuzz
