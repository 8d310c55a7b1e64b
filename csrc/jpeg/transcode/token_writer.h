// What else a frame's description and the tokens of its one scan are written to, besides a JPEG.
#pragma once

#include <vector>

#include "base/status.h"
#include "jpeg/transcode/jpeg_writer.h"
#include "jpeg/transcode/output_header.h"
#include "jpeg/transcode/tokens.h"

namespace fastpipe {

class TokenWriter {
 public:
  virtual ~TokenWriter() = default;
  virtual Status write(const OutputHeader& header, const std::vector<Segment>& segments, const TokenList& tokens,
                       const JpegWriter& jpeg) = 0;
};

}  // namespace fastpipe
