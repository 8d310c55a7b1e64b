// The entropy-coded bytes of a common baseline JPEG -> rows of gray or RGBX of a region, a strip of MCUs at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/image.h"
#include "base/row_sink.h"
#include "jpeg/decode/crop_region.h"
#include "jpeg/decode/entropy.h"
#include "jpeg/decode/strips.h"
#include "jpeg/parsed_header.h"
#include "jpeg/restart_map.h"
#include "jpeg/unstuff.h"

namespace fastpipe {

// Note [strips]
// libjpeg-turbo spends most of its time waiting: a Huffman code must be known before the next one can be looked for.
// Restart intervals are independent, so this decoder reads two of them at once, a symbol of each in turn; a symbol and
// the coefficient behind it take one lookup. It also leaves out what a crop does not need: blocks beside it are read
// but not transformed, the rest of a tile behind it is not read, and nothing is set up that serves other kinds of
// JPEG. What it makes is bit-identical to libjpeg-turbo's pixels.
// It gives up on whatever is not as an encoder writes it; libjpeg-turbo then decides what is wrong, if anything.
class BaselineDecoder : private StripSource {
 public:
  // Whether this machine has the instructions.
  static bool available() { return can_read_bits() && StripDecoder::available(); }

  // Takes a picture. The map is of the scan's restart intervals (one, where there are no markers), `readable_end` the
  // end of the file's bytes; all must stay valid until the next open. False where it gives up.
  bool open(const ParsedHeader& header, const RestartMap& map, const std::uint8_t* readable_end);

  // As StripDecoder::decode.
  bool decode(const CropRows* crops, std::size_t count);

 private:
  int begin(const StripWindow& all) override;
  bool read(const StripWindow& strip, const std::array<CoefficientRows, kMostComponents>& to) override;
  int first_read(int left) const override;
  bool read_tiles(const StripWindow& strip, const std::array<CoefficientRows, kMostComponents>& to);
  bool read_without_markers(const StripWindow& strip, const std::array<CoefficientRows, kMostComponents>& to);
  std::size_t room(std::size_t interval) const;
  bool open(std::size_t interval, std::uint8_t* memory, BitStream* stream) const;

  // Of the picture at hand.
  const ParsedHeader* header_ = nullptr;
  const RestartMap* map_ = nullptr;
  const std::uint8_t* readable_end_ = nullptr;
  Unstuff unstuff_ = nullptr;
  StripPicture picture_;
  McuRun whole_scan_;  // where there are no restart markers: goes on from strip to strip
  int next_mcu_ = 0;   // the MCU that it is at

  // Scratch, used again.
  StripDecoder strips_;
  EntropyDecoder entropy_;
  std::vector<std::size_t> intervals_;
  std::vector<McuRun> runs_;
  std::vector<std::uint8_t> stream_bytes_;
};

}  // namespace fastpipe
