#include "transcode.h"

#include "coefficients.h"

namespace fastpipe {

Status Transcoder::run(const std::uint8_t* data, std::size_t size, const std::vector<Segment>& segments,
                       const TranscodeOptions& options, JpegInfo* info) {
  *info = {};
  tokens_.clear();
  writer_.clear();
  FrameHeader header;
  Status status = read_coefficients(data, size, options, info, &header, &tokens_);
  if (!status.ok() || header.components == 0) return status;
  writer_.write(header, segments, tokens_);
  // libjpeg can carry coefficients over for chroma layouts that it cannot decode; it says so when a decode begins.
  status = decoder_.open(writer_.data(), writer_.size(), options.max_pixels);
  if (!status.ok()) return status;
  return decoder_.decode(1, {0, 0, 1, 1}, {nullptr, [](void*, int, int, const std::uint8_t*, std::ptrdiff_t) {}});
}

}  // namespace fastpipe
