// Any JPEG that libjpeg-turbo can read -> baseline JPEG with the same coefficients, optimised Huffman tables, one scan
// and restart markers between tiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "jpeg.h"
#include "status.h"

namespace fastpipe {

// What the source turned out to be.
struct JpegInfo {
  int width = 0;
  int height = 0;
  int components = 0;  // 1 gray, 3 colour, 4 CMYK or YCCK
  int precision = 0;   // bits a sample
  bool progressive = false;
  bool arithmetic = false;
  bool stray_bytes = false;  // bytes that belong to no segment were skipped
  bool exact = false;        // the output has the source's coefficients
};

// A segment to write after the header: APPn or COM, as its marker byte and its bytes without marker and length.
struct Segment {
  int marker;
  const std::uint8_t* data;
  std::size_t size;
};

struct TranscodeOptions {
  std::int64_t max_pixels = kMaxPixels;
  int max_scans = 256;
  int tile_width = 0;       // pixels between restart markers, about; 0: none. Note [tile width]
  bool check_only = false;  // read the whole file and judge it, write nothing
};

// Transcodes one image at a time.
class Transcoder {
 public:
  Transcoder();
  ~Transcoder();

  // Reads every coefficient of `data`: what is truncated or corrupt anywhere is found. Pixels do not change, but for
  // 12-bit sources, whose coefficients are requantised to 8 bits at quality 95 (info.exact is then false).
  // What is written is what JpegDecoder takes: a source whose chroma layout it does not is refused as unsupported.
  // A source of 4 components is judged and described, and not written: it has no place in a training set as it is.
  Status run(const std::uint8_t* data, std::size_t size, const std::vector<Segment>& segments,
             const TranscodeOptions& options, JpegInfo* info);

  // What run wrote; valid until the next run.
  const std::uint8_t* output() const;
  std::size_t output_size() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::vector<std::uint8_t> patched_;
  JpegDecoder decoder_;
};

}  // namespace fastpipe
