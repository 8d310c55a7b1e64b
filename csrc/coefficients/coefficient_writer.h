// A frame's description and the tokens of its one scan -> a KEY.fpc: the coefficients, stored for speed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "coefficients/block_row_writer.h"
#include "jpeg/transcode/token_writer.h"

namespace fastpipe {

// Writes one picture at a time; keeps its memory.
class CoefficientWriter : public TokenWriter {
 public:
  // Refuses DC values beyond 16 bits, which mean nothing to any decoder.
  Status write(const OutputHeader& header, const std::vector<Segment>& segments, const TokenList& tokens,
               const JpegWriter& jpeg) override;

  // What write wrote; valid until the next one.
  const std::uint8_t* data() const { return bytes_.data(); }
  std::size_t size() const { return bytes_.size(); }

  void clear() {
    give_back_if_giant(&bytes_);
    bytes_.clear();
  }

 private:
  static constexpr std::size_t kMostFactor = 4;

  bool add_mcu_row(const OutputHeader& header, int mcu_y, const BlockRecord** next, const std::int16_t** values);

  std::vector<std::uint8_t> bytes_;
  std::array<std::array<BlockRowWriter, kMostFactor>, kMostComponents> rows_;  // of an MCU row
  bool high_dc_ = false;
};

}  // namespace fastpipe
