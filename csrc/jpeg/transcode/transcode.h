// Any JPEG that libjpeg-turbo can read -> baseline JPEG with the same coefficients, optimised Huffman tables, one scan
// and restart markers between tiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "jpeg/decode/jpeg.h"
#include "jpeg/parsed_header.h"
#include "jpeg/transcode/jpeg_writer.h"
#include "jpeg/transcode/output_header.h"
#include "jpeg/transcode/scan_tokens.h"
#include "jpeg/transcode/token_writer.h"
#include "jpeg/transcode/tokens.h"
#include "jpeg/transcode/transcode_options.h"

namespace fastpipe {

// Transcodes one image at a time; a thread keeps one and reuses its memory.
class Transcoder {
 public:
  // Reads every coefficient of `data`: what is truncated or corrupt anywhere is found. Pixels do not change, but for
  // 12-bit sources, whose coefficients are requantised to 8 bits at quality 95 (info.exact is then false).
  // What is written is what JpegDecoder takes: a source whose chroma layout it does not is refused as unsupported.
  // Where `also` is given, it is given all that the JPEG was written from, and the JPEG.
  // A source of 4 components is judged and described, and not written: it has no place in a training set as it is.
  Status run(const std::uint8_t* data, std::size_t size, const std::vector<Segment>& segments,
             const TranscodeOptions& options, JpegInfo* info, TokenWriter* also = nullptr);

  // What run wrote, empty if it did not; valid until the next run.
  const std::uint8_t* output() const { return writer_.data(); }
  std::size_t output_size() const { return writer_.size(); }

 private:
  Status check_decodable(std::int64_t max_pixels);
  bool read_common(const std::uint8_t* data, std::size_t size, const TranscodeOptions& options, JpegInfo* info,
                   OutputHeader* header);

  ParsedHeader scan_header_;
  ScanTokens scan_;
  TokenList tokens_;
  JpegWriter writer_;
  JpegDecoder decoder_;
};

}  // namespace fastpipe
