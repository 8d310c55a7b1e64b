// A KEY.fpc -> a JPEG of the same coefficients, of the whole picture or of some of its MCUs.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "coefficients/fpc_header.h"
#include "coefficients/mcu_rows.h"
#include "jpeg/decode/splice.h"
#include "jpeg/transcode/jpeg_writer.h"
#include "jpeg/transcode/tokens.h"

namespace fastpipe {

// Keeps its memory.
class JpegRestorer {
 public:
  // The JPEG that packing would have stored, byte for byte: its hash is compared. All of the file's bytes must be
  // there.
  Status whole(const FpcHeader& header, const std::uint8_t* data, const BlockKernels& kernels);

  // The JPEG that the MCUs of a range make (tiles of one MCU each), without segments and, unless these are all MCUs,
  // without restart markers. The bytes of their rows must be there.
  Status part(const FpcHeader& header, const std::uint8_t* data, const TileRange& mcus, Size size,
              const BlockKernels& kernels);

  // What was written; valid until the next call.
  const std::uint8_t* jpeg() const { return writer_.data(); }
  std::size_t jpeg_bytes() const { return writer_.size(); }

  // Lets go of memory that only a giant picture needs.
  void give_back();

 private:
  Status write(const FpcHeader& header, const std::uint8_t* data, const TileRange& mcus, const OutputHeader& frame,
               const std::vector<Segment>& segments, const BlockKernels& kernels);

  McuRows rows_;
  std::vector<std::int16_t> coefficients_;
  TokenList tokens_;
  JpegWriter writer_;
};

}  // namespace fastpipe
