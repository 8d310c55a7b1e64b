#include "layout.h"

#include "jpeg/markers.h"

namespace fuzz {
namespace {

using namespace fastpipe;

bool is_restart(int code) { return code >= marker::kRestart && code < marker::kRestart + 8; }

// Where the entropy-coded bytes end that begin at `at`.
std::size_t scan_end(const Bytes& jpeg, std::size_t at, std::vector<std::size_t>* restarts) {
  for (; at + 1 < jpeg.size(); ++at) {
    if (jpeg[at] != 0xFF || jpeg[at + 1] == marker::kStuffing) continue;
    if (!is_restart(jpeg[at + 1])) return at;
    restarts->push_back(at);
  }
  return jpeg.size();
}

}  // namespace

const Segment* Layout::first(int code) const {
  for (const Segment& segment : segments) {
    if (segment.code == code) return &segment;
  }
  return nullptr;
}

const Segment* Layout::frame() const {
  for (const Segment& segment : segments) {
    const bool other = segment.code == marker::kHuffmanTables || segment.code == 0xC8 || segment.code == 0xCC;
    if (segment.code >= 0xC0 && segment.code <= 0xCF && !other && segment.size() >= 10) return &segment;
  }
  return nullptr;
}

Layout layout_of(const Bytes& jpeg) {
  Layout layout;
  std::size_t at = 2;
  while (at + 4 <= jpeg.size() && jpeg[at] == 0xFF) {
    Segment segment;
    segment.begin = at;
    segment.code = jpeg[at + 1];
    segment.end = at + 2 + static_cast<std::size_t>(jpeg[at + 2] << 8 | jpeg[at + 3]);
    if (segment.code == marker::kEnd || segment.size() < 4 || segment.end > jpeg.size()) break;
    layout.segments.push_back(segment);
    at = segment.end;
    if (segment.code == marker::kScan) {
      at = scan_end(jpeg, at, &layout.restarts);
      layout.scans.push_back({segment.end, at});
    }
  }
  return layout;
}

}  // namespace fuzz
