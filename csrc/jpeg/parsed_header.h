// The first bytes of a common baseline JPEG, parsed: what decoding its scan takes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/image.h"
#include "jpeg/huffman_lookup.h"

namespace fastpipe {

constexpr int kMostComponents = 3;
constexpr int kBlockSide = 8;  // of a block of coefficients, in pixels at full size

// The tables of a scan by their numbers, and which of them each component uses.
struct ScanTables {
  static constexpr int kMost = 4;

  std::array<std::array<std::uint16_t, 64>, kMost> quant;  // steps, row by row
  std::array<HuffmanSpec, kMost> dc = {};
  std::array<HuffmanSpec, kMost> ac = {};
  std::array<std::size_t, kMostComponents> quant_of = {};
  std::array<std::size_t, kMostComponents> dc_of = {};
  std::array<std::size_t, kMostComponents> ac_of = {};
};

// What JFIF's segment says; as libjpeg has it where there is none.
struct Jfif {
  int minor_version = 1;
  int density_unit = 0;
  int x_density = 1, y_density = 1;
};

struct ParsedHeader {
  Size size;
  int components = 0;  // 1: gray; 3: YCbCr, the two colours with one block an MCU
  int across = 1;      // blocks of brightness in an MCU: 1 or 2 sideways,
  int down = 1;        // 1 or 2 downwards
  int interval = 0;    // MCUs between restart markers; 0: none, or one interval
  ScanTables tables;
  std::array<int, kMostComponents> ids = {};
  std::array<int, kMostComponents> factors = {};  // of sampling, as the file has them: two hexadecimal digits
  Jfif jfif;
  std::size_t bytes = 0;  // up to the entropy-coded bytes

  int mcus_per_row() const;
  int mcu_rows() const;

  // How many restart intervals the scan has, 1 without markers; 0 for intervals that do not divide a row.
  std::size_t intervals_of_grid() const;

  // Reads the segments up to and with the scan's header (ITU-T T.81, B.2), without allocating anything. The tables
  // point into `data`. False for whatever is not a gray or YCbCr baseline JPEG of one scan as encoders write it:
  // libjpeg knows more kinds, and words for what is wrong.
  bool read(const std::uint8_t* data, std::size_t size);
};

}  // namespace fastpipe
