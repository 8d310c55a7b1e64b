// What is done to headers, lengths and sizes, to the order of segments, and to the file's end.
#include <algorithm>

#include "jpeg/markers.h"
#include "mutate.h"

namespace fuzz {
namespace {

using namespace fastpipe;
using Seeds = std::vector<Bytes>;

void flip_bits(Random* random, const Seeds&, Bytes* jpeg) {
  for (int left = 1 + random->below(4); left > 0 && !jpeg->empty(); --left) {
    std::uint8_t& value = (*jpeg)[random->below(jpeg->size())];
    value = static_cast<std::uint8_t>(value ^ 1 << random->below(8));
  }
}

void truncate(Random* random, const Seeds&, Bytes* jpeg) {
  if (jpeg->empty()) return;
  jpeg->resize(random->below(jpeg->size()));
  if (random->one_in(2)) insert(jpeg, jpeg->size(), {0xFF, marker::kEnd});
}

// The head of this file and the tail of another, cut where they like, or where the entropy-coded bytes begin.
void splice(Random* random, const Seeds& seeds, Bytes* jpeg) {
  const Bytes& other = seeds[random->below(seeds.size())];
  std::size_t head = random->below(jpeg->size() + 1), tail = random->below(other.size() + 1);
  const Layout here = layout_of(*jpeg), there = layout_of(other);
  if (random->one_in(2) && !here.scans.empty() && !there.scans.empty()) {
    head = here.scans[0].begin;
    tail = there.scans[0].begin;
  }
  jpeg->resize(head);
  insert(jpeg, head, copy(other, {tail, other.size()}));
}

const Segment* any_segment(Random* random, const Layout& layout) {
  return layout.segments.empty() ? nullptr : &layout.segments[random->below(layout.segments.size())];
}

void drop_segment(Random* random, const Seeds&, Bytes* jpeg) {
  const Layout layout = layout_of(*jpeg);
  if (const Segment* const segment = any_segment(random, layout)) erase(jpeg, *segment);
}

void move_segment(Random* random, const Seeds&, Bytes* jpeg) {
  const Layout layout = layout_of(*jpeg);
  const Segment* const segment = any_segment(random, layout);
  const Segment* const before = any_segment(random, layout);
  if (segment == nullptr) return;
  const Bytes moved = copy(*jpeg, *segment);
  const std::size_t to = before->begin > segment->begin ? before->begin - segment->size() : before->begin;
  if (random->one_in(2)) {
    insert(jpeg, before->begin, moved);  // a second one
  } else {
    erase(jpeg, *segment);
    insert(jpeg, to, moved);
  }
}

void change_marker(Random* random, const Seeds&, Bytes* jpeg) {
  const Layout layout = layout_of(*jpeg);
  if (const Segment* const segment = any_segment(random, layout)) {
    const std::uint8_t codes[] = {0xC0, 0xC1, 0xC2, 0xC3, 0xC9, 0xCA, 0xCC, 0xD9, 0xDA, 0xDD, 0x00, random->byte()};
    (*jpeg)[segment->begin + 1] = codes[random->below(std::size(codes))];
  }
}

void change_length(Random* random, const Seeds&, Bytes* jpeg) {
  const Layout layout = layout_of(*jpeg);
  if (const Segment* const segment = any_segment(random, layout)) {
    const auto length = static_cast<int>(segment->size() - 2);
    const int lengths[] = {0, 1, 2, length - 1, length + 1, 0xFFFF, random->below(0x10000)};
    const int value = lengths[random->below(std::size(lengths))];
    (*jpeg)[segment->begin + 2] = static_cast<std::uint8_t>(value >> 8);
    (*jpeg)[segment->begin + 3] = static_cast<std::uint8_t>(value);
  }
}

// Bytes without a meaning of their own, or with one that is out of place.
void insert_stray(Random* random, const Seeds&, Bytes* jpeg) {
  const Layout layout = layout_of(*jpeg);
  const Segment* const segment = any_segment(random, layout);
  if (segment == nullptr) return;
  const Bytes strays[] = {{0xFF},
                          {0xFF, 0xD3},
                          {0xFF, 0xD8},
                          {0xFF, 0xD9},
                          {0xFF, 0x01},
                          {0x00, 0x00},
                          {random->byte(), random->byte()},
                          {0xFF, 0xFE, 0x00, 0x05, 1, 2, 3},
                          {0xFF, 0xEE, 0, 14, 'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, random->byte()},
                          {0xFF, 0xDC, 0, 4, 0, 40}};
  insert(jpeg, segment->begin, strays[random->below(std::size(strays))]);
}

void change_size(Random* random, const Seeds&, Bytes* jpeg) {
  const Layout layout = layout_of(*jpeg);
  const Segment* const frame = layout.frame();
  if (frame == nullptr) return;
  for (std::size_t side = 0; side < 2; ++side) {
    if (random->one_in(3)) continue;
    const std::size_t at = frame->begin + 5 + 2 * side;
    const int old = (*jpeg)[at] << 8 | (*jpeg)[at + 1];
    const int sizes[] = {0,       1,       2,      old + 1, old - 1, old + 8, old + 16,
                         2 * old, old / 2, 13'000, 65'500,  65'501,  65'535,  random->below(0x10000)};
    const int value = sizes[random->below(std::size(sizes))];
    (*jpeg)[at] = static_cast<std::uint8_t>(value >> 8);
    (*jpeg)[at + 1] = static_cast<std::uint8_t>(value);
  }
}

// Precision, number of components, their sampling factors, numbers and tables.
void change_frame(Random* random, const Seeds&, Bytes* jpeg) {
  const Layout layout = layout_of(*jpeg);
  const Segment* const frame = layout.frame();
  if (frame == nullptr) return;
  if (random->one_in(4)) {
    (*jpeg)[frame->begin + 4] = random->one_in(2) ? 12 : random->byte();
    return;
  }
  const std::uint8_t values[] = {0x11, 0x12, 0x21, 0x22, 0x41, 0x14, 0x44, 0x00, 1, 2, 3, 4, random->byte()};
  (*jpeg)[frame->begin + 9 + random->below(frame->size() - 9)] = values[random->below(std::size(values))];
}

// Which components and tables a scan has, which coefficients, which bits of them.
void change_scan_header(Random* random, const Seeds&, Bytes* jpeg) {
  const Layout layout = layout_of(*jpeg);
  std::vector<Segment> scans;
  std::copy_if(layout.segments.begin(), layout.segments.end(), std::back_inserter(scans),
               [](const Segment& segment) { return segment.code == marker::kScan && segment.size() > 4; });
  if (scans.empty()) return;
  const Segment& scan = scans[random->below(scans.size())];
  const std::uint8_t values[] = {0, 1, 2, 3, 0x10, 0x11, 0x13, 63, 64, random->byte()};
  (*jpeg)[scan.begin + 4 + random->below(scan.size() - 4)] = values[random->below(std::size(values))];
}

// A scan, with what lies before it, again and again.
void repeat_scan(Random* random, const Seeds&, Bytes* jpeg) {
  const Layout layout = layout_of(*jpeg);
  if (layout.scans.empty()) return;
  const Range scan = layout.scans[random->below(layout.scans.size())];
  Range whole = scan;
  for (const Segment& segment : layout.segments) {
    if (segment.end == scan.begin) whole.begin = segment.begin;
  }
  if (whole.size() > 20'000) return;
  const Bytes again = copy(*jpeg, whole);
  const int times = 1 + random->below(random->one_in(8) ? 300 : 4);
  Bytes all;
  for (int i = 0; i < times && all.size() < 100'000; ++i) insert(&all, all.size(), again);
  insert(jpeg, whole.end, all);
}

}  // namespace

const std::vector<Damage>& file_damages() {
  static const std::vector<Damage> all = {
      {"flip bits", flip_bits},
      {"truncate", truncate},
      {"splice", splice},
      {"drop a segment", drop_segment},
      {"move a segment", move_segment},
      {"another marker", change_marker},
      {"another length", change_length},
      {"stray bytes", insert_stray},
      {"another size", change_size},
      {"another frame", change_frame},
      {"another scan header", change_scan_header},
      {"scans again and again", repeat_scan},
  };
  return all;
}

}  // namespace fuzz
