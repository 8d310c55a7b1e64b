#include "coefficients/fpc_header.h"

#include <algorithm>
#include <cstring>

#include "jpeg/markers.h"

namespace fastpipe {
namespace {

constexpr std::uint8_t kMagic[4] = {'F', 'P', 'C', 1};
// Where things are.
constexpr std::size_t kSizeAt = 4, kHashAt = 8, kWidthAt = 16, kHeightAt = 18, kComponentsAt = 20, kFlagsAt = 21;
constexpr std::size_t kIntervalAt = 22, kJfifAt = 24, kTablesAt = 30, kSegmentsAt = 32, kComponentAt = 36;
constexpr std::size_t kComponentBytes = 4, kQuantAt = 48, kQuantBytes = 128, kRowBytes = 4;
constexpr std::size_t kSegmentHead = 4, kMostSegment = 65533;
constexpr int kRgb = 1, kHighDc = 2;

constexpr int kMostSide = 65500;  // libjpeg's limit
constexpr int kMostFactor = 4, kMostBlocksOfMcu = 10;
constexpr std::size_t kLeastBlockBytes = 2;

unsigned get16(const std::uint8_t* at) { return at[0] | at[1] << 8; }
std::uint32_t get32(const std::uint8_t* at) { return get16(at) | static_cast<std::uint32_t>(get16(at + 2)) << 16; }
std::uint64_t get64(const std::uint8_t* at) { return get32(at) | static_cast<std::uint64_t>(get32(at + 4)) << 32; }

void put(std::uint8_t* at, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) at[i] = static_cast<std::uint8_t>(value >> (8 * i));
}

void append(std::vector<std::uint8_t>* out, std::uint64_t value, int bytes) {
  out->resize(out->size() + static_cast<std::size_t>(bytes));
  put(out->data() + out->size() - bytes, value, bytes);
}

// Bit n: table n is stored.
unsigned tables_used(const OutputHeader& frame) {
  unsigned used = 0;
  for (std::size_t c = 0; c < frame.components; ++c) used |= 1u << frame.component[c].quant;
  return used;
}

}  // namespace

bool is_fpc(const std::uint8_t* data, std::size_t size) {
  return size >= sizeof kMagic && std::memcmp(data, kMagic, sizeof kMagic - 1) == 0;
}

// What is needed of the header to find its end is read without trust; `read` judges it.
std::size_t FpcHeader::bytes(const std::uint8_t* data, std::size_t size) {
  if (size < kQuantAt || !is_fpc(data, size)) return 0;
  unsigned down = 1;
  for (std::size_t c = 0; data[kComponentsAt] > 1 && c < kMostComponents; ++c) {
    down = std::max(down, data[kComponentAt + c * kComponentBytes + 1] & 15u);
  }
  const std::size_t rows = (get16(data + kHeightAt) + kBlockSide * down - 1) / (kBlockSide * down);
  const auto tables = static_cast<std::size_t>(__builtin_popcount(data[kTablesAt] & 15u));
  return kQuantAt + tables * kQuantBytes + (rows + 1) * kRowBytes;
}

Status FpcHeader::read(const std::uint8_t* data, std::size_t known, std::size_t file_size, std::int64_t max_pixels) {
  if (known < kQuantAt || !is_fpc(data, known)) return error(Code::not_coefficients, "%zu bytes", file_size);
  if (data[3] != kMagic[3]) {
    return error(Code::unsupported, "coefficients of version %d; this fastpipe reads version %d", data[3], kMagic[3]);
  }
  size = get32(data + kSizeAt);
  xxh3_64 = get64(data + kHashAt);
  segments = get32(data + kSegmentsAt);
  if (size != file_size) return error(Code::coefficients_damaged, "%zu bytes; its header says %zu", file_size, size);
  frame = {};
  frame.size = {static_cast<int>(get16(data + kWidthAt)), static_cast<int>(get16(data + kHeightAt))};
  frame.components = data[kComponentsAt];
  const int flags = data[kFlagsAt];
  frame.rgb = (flags & kRgb) != 0;
  high_dc = (flags & kHighDc) != 0;
  frame.interval = static_cast<int>(get16(data + kIntervalAt));
  const std::uint8_t* const jfif = data + kJfifAt;
  frame.jfif = {jfif[0], jfif[1], static_cast<int>(get16(jfif + 2)), static_cast<int>(get16(jfif + 4))};
  const auto [width, height] = frame.size;
  if (width < 1 || height < 1 || width > kMostSide || height > kMostSide || flags > (kRgb | kHighDc) ||
      (frame.components != 1 && frame.components != 3)) {
    return error(Code::coefficients_damaged, "a header of %d x %d pixels, %zu components, flags %d", width, height,
                 frame.components, flags);
  }
  if (static_cast<std::int64_t>(width) * height > max_pixels) {
    return error(Code::too_large, "%d x %d is over %lld pixels", width, height, static_cast<long long>(max_pixels));
  }
  int mcu_blocks = 0;
  for (std::size_t c = 0; c < frame.components; ++c) {
    const std::uint8_t* const at = data + kComponentAt + c * kComponentBytes;
    OutputHeader::Component& component = frame.component[c];
    component = {at[0], at[1] >> 4, at[1] & 15, at[2], at[3]};
    if (component.across < 1 || component.across > kMostFactor || component.down < 1 || component.down > kMostFactor ||
        component.quant >= ScanTables::kMost || component.pair >= (c == 0 ? 1 : kTablePairs)) {
      return error(Code::coefficients_damaged, "component %zu has factors 0x%02x, tables %d and %d", c + 1, at[1],
                   at[2], at[3]);
    }
    mcu_blocks += frame.across(c) * frame.down(c);
  }
  const std::size_t end = bytes(data, known);
  if (mcu_blocks > kMostBlocksOfMcu || data[kTablesAt] != tables_used(frame)) {
    return error(Code::coefficients_damaged, "%d blocks in an MCU, tables 0x%02x", mcu_blocks, data[kTablesAt]);
  }
  if (end > known || end + kFpcPadding > size)
    return error(Code::coefficients_damaged, "%zu bytes cannot hold a header", known);
  const std::uint8_t* table = data + kQuantAt;
  for (std::size_t number = 0; number < ScanTables::kMost; ++number) {
    if ((tables_used(frame) >> number & 1) == 0) continue;
    for (std::size_t i = 0; i < 64; ++i) frame.quant[number][i] = static_cast<std::uint16_t>(get16(table + 2 * i));
    table += kQuantBytes;
  }
  rows_ = table;

  // Before anything is made ready for the pixels.
  const int rows = frame.mcus().height;
  bool good = row(0) == end && row(rows) <= segments && segments <= size - kFpcPadding;
  for (int y = 0; y < rows && good; ++y) {
    std::size_t blocks = 0;
    for (std::size_t c = 0; c < frame.components; ++c) {
      const Size all = frame.blocks(c);
      const int down = std::min(frame.down(c), all.height - y * frame.down(c));
      blocks += static_cast<std::size_t>(std::max(down, 0)) * static_cast<std::size_t>(all.width);
    }
    good = row(y) <= row(y + 1) && row(y + 1) - row(y) >= kLeastBlockBytes * blocks;
  }
  if (!good) return error(Code::coefficients_damaged, "the places of %d rows do not fit into %zu bytes", rows, size);
  return {};
}

std::size_t FpcHeader::row(int mcu_row) const { return get32(rows_ + static_cast<std::size_t>(mcu_row) * kRowBytes); }

bool FpcHeader::read_segments(const std::uint8_t* data, std::vector<Segment>* found) const {
  found->clear();
  const std::size_t end = size - kFpcPadding;
  for (std::size_t at = segments; at < end;) {
    if (end - at < kSegmentHead) return false;
    const std::size_t bytes = get16(data + at + 2);
    const bool known = (data[at] >= marker::kFirstApp && data[at] <= marker::kLastApp) || data[at] == marker::kComment;
    if (!known || data[at + 1] != 0 || bytes > kMostSegment || bytes > end - at - kSegmentHead) return false;
    found->push_back({data[at], data + at + kSegmentHead, bytes});
    at += kSegmentHead + bytes;
  }
  return true;
}

void FpcHeaderWriter::begin(const OutputHeader& frame) {
  out_->assign(kQuantAt, 0);
  std::uint8_t* const head = out_->data();
  std::memcpy(head, kMagic, sizeof kMagic);
  put(head + kWidthAt, static_cast<std::uint64_t>(frame.size.width), 2);
  put(head + kHeightAt, static_cast<std::uint64_t>(frame.size.height), 2);
  head[kComponentsAt] = static_cast<std::uint8_t>(frame.components);
  head[kFlagsAt] = frame.rgb ? kRgb : 0;
  put(head + kIntervalAt, static_cast<std::uint64_t>(frame.interval), 2);
  head[kJfifAt] = static_cast<std::uint8_t>(frame.jfif.minor_version);
  head[kJfifAt + 1] = static_cast<std::uint8_t>(frame.jfif.density_unit);
  put(head + kJfifAt + 2, static_cast<std::uint64_t>(frame.jfif.x_density), 2);
  put(head + kJfifAt + 4, static_cast<std::uint64_t>(frame.jfif.y_density), 2);
  const unsigned used = tables_used(frame);
  head[kTablesAt] = static_cast<std::uint8_t>(used);
  for (std::size_t c = 0; c < frame.components; ++c) {
    const OutputHeader::Component& component = frame.component[c];
    std::uint8_t* const at = head + kComponentAt + c * kComponentBytes;
    at[0] = static_cast<std::uint8_t>(component.id);
    at[1] = static_cast<std::uint8_t>(component.across << 4 | component.down);
    at[2] = static_cast<std::uint8_t>(component.quant);
    at[3] = static_cast<std::uint8_t>(component.pair);
  }
  for (std::size_t number = 0; number < ScanTables::kMost; ++number) {
    if ((used >> number & 1) == 0) continue;
    for (const std::uint16_t step : frame.quant[number]) append(out_, step, 2);
  }
  next_row_ = out_->size();
  out_->resize(out_->size() + static_cast<std::size_t>(frame.mcus().height + 1) * kRowBytes);
  end_row();
}

void FpcHeaderWriter::end_row() {
  put(out_->data() + next_row_, out_->size(), kRowBytes);
  next_row_ += kRowBytes;
}

void FpcHeaderWriter::finish(const std::vector<Segment>& segments, bool high_dc, std::uint64_t xxh3_64) {
  put(out_->data() + kSegmentsAt, out_->size(), 4);
  for (const Segment& segment : segments) {
    append(out_, static_cast<std::uint64_t>(segment.marker), 2);
    append(out_, segment.size, 2);
    out_->insert(out_->end(), segment.data, segment.data + segment.size);
  }
  out_->resize(out_->size() + kFpcPadding);
  std::uint8_t* const head = out_->data();
  if (high_dc) head[kFlagsAt] |= kHighDc;
  put(head + kSizeAt, out_->size(), 4);
  put(head + kHashAt, xxh3_64, 8);
}

}  // namespace fastpipe
