// The entropy-coded bytes of a common baseline JPEG -> RGBX rows of a region, a strip of MCUs at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/image.h"
#include "base/row_sink.h"
#include "jpeg/decode/entropy.h"
#include "jpeg/parsed_header.h"
#include "jpeg/restart_map.h"

namespace fastpipe {

// Note [strips]
// libjpeg-turbo spends most of its time waiting: a Huffman code must be known before the next one can be looked for.
// Restart intervals are independent, so this decoder reads two of them at once, a symbol of each in turn; a symbol and
// the coefficient behind it take one lookup. It also leaves out what a crop does not need: blocks beside it are read
// but not transformed, the rest of a tile behind it is not read, and nothing is set up that serves other kinds of
// JPEG. What it makes is bit-identical to libjpeg-turbo's pixels.
// It gives up on whatever is not as an encoder writes it; libjpeg-turbo then decides what is wrong, if anything.
class BaselineDecoder {
 public:
  // Whether this machine has the instructions.
  static bool available();

  // Decodes `region`, in pixels of the picture at 1/denominator of its size (1, 2, 4 or 8). The map is of the scan's
  // restart intervals (one, where there are no markers), `readable_end` the end of the file's bytes. False where it
  // gives up; rows may then have been given already.
  bool decode(const ParsedHeader& header, int denominator, const RestartMap& map, const std::uint8_t* readable_end,
              Rect region, RowSink sink);

 private:
  struct Plane {
    std::uint8_t* first = nullptr;  // the first sample of the strip; there is a row above and one below
    std::ptrdiff_t stride = 0;
    int block = 0;   // the side of a block in samples
    int blocks = 0;  // across
    int rows = 0;    // of a strip

    std::uint8_t* row(int y) const { return first + y * stride; }
  };

  // What of the picture is decoded: MCUs [left, right) of rows [top, bottom).
  struct Window {
    Size mcu;
    int per_row = 0;
    int left = 0, right = 0, top = 0, bottom = 0;
    int rows_at_once = 1;
  };

  bool decode_all(const ParsedHeader& header, int denominator, const RestartMap& map, const std::uint8_t* readable_end,
                  Rect region, RowSink sink);
  bool scale(int denominator);
  Size colour_size() const;
  void plan_window();
  void lay_out();
  bool read_strip(int top, int bottom);
  bool read_tiles(int top, int bottom);
  bool read_without_markers(int top, int bottom);  // where there are no markers
  std::size_t room(std::size_t interval) const;
  bool open(std::size_t interval, std::uint8_t* memory, BitStream* stream) const;
  bool transform(int rows);
  void mend_edges(int top, int bottom);
  void keep_last_rows(int rows);
  static void copy_row(const Plane& plane, int from, int to);
  int give_rows(int y, int end, int strip_top, RowSink sink);
  void convert_row(int y, int strip_top, std::uint8_t* out);
  const std::uint8_t* color_row(const Plane& plane, int y, int strip_top, std::vector<std::uint8_t>* memory);

  // Of the picture at hand.
  const ParsedHeader* header_ = nullptr;
  const RestartMap* map_ = nullptr;
  const std::uint8_t* readable_end_ = nullptr;
  Rect region_;
  int wide_ = 1, high_ = 1;  // pixels of brightness for a sample of colour
  Window window_;
  std::array<Plane, kMostComponents> planes_;
  std::array<CoefficientRows, kMostComponents> coefficients_;

  std::size_t coefficient_count_ = 0;
  std::ptrdiff_t row_stride_ = 0;
  McuRun whole_scan_;  // where there are no restart markers: goes on from strip to strip
  int next_mcu_ = 0;   // the MCU that it is at

  // Scratch, used again.
  EntropyDecoder entropy_;
  std::vector<std::size_t> intervals_;
  std::vector<McuRun> runs_;
  std::vector<std::uint8_t> stream_bytes_;
  std::vector<std::int16_t> coefficient_memory_;
  std::vector<std::uint8_t> plane_memory_;
  std::vector<std::uint16_t> sums_;
  std::vector<std::uint8_t> cb_, cr_;
  std::vector<std::uint8_t> rows_;
};

}  // namespace fastpipe
