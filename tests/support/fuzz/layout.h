// A JPEG's bytes, damaged or not -> where its segments and its entropy-coded bytes are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fuzz {

using Bytes = std::vector<std::uint8_t>;

// Bytes [begin, end).
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;

  std::size_t size() const { return end - begin; }
};

// With its marker and its length.
struct Segment : Range {
  int code = 0;
};

struct Layout {
  std::vector<Segment> segments;      // up to where they make no more sense, of all scans
  std::vector<Range> scans;           // their entropy-coded bytes
  std::vector<std::size_t> restarts;  // where restart markers begin, of all scans

  // The first segment of a kind; nullptr where there is none.
  const Segment* first(int code) const;
  const Segment* frame() const;
};

Layout layout_of(const Bytes& jpeg);

}  // namespace fuzz
