#include "jpeg/transcode/transcode.h"

#include "jpeg/transcode/coefficients.h"
#include "jpeg/transcode/tiling.h"

namespace fastpipe {

Status Transcoder::run(const std::uint8_t* data, std::size_t size, const std::vector<Segment>& segments,
                       const TranscodeOptions& options, JpegInfo* info, TokenWriter* also) {
  *info = {};
  writer_.clear();
  tokens_.clear();
  tokens_.with_values = also != nullptr;
  OutputHeader header;
  Status status;
  const bool common = read_common(data, size, options, info, &header);
  if (common && options.check_only) header.components = 0;
  if (!common) {
    *info = {};
    tokens_.clear();
    header = {};
    status = read_coefficients(data, size, options, info, &header, &tokens_);
  }
  if (status.ok() && header.components > 0) {
    writer_.write(header, segments, tokens_);
    if (!common) status = check_decodable(options.max_pixels);
    if (status.ok() && also != nullptr) status = also->write(header, segments, tokens_, writer_);
  }
  tokens_.clear();
  return status;
}

// libjpeg can carry coefficients over for chroma layouts that it cannot decode; it says so when a decode begins.
Status Transcoder::check_decodable(std::int64_t max_pixels) {
  const Status status = decoder_.open(writer_.data(), writer_.size(), max_pixels);
  if (!status.ok()) return status;
  return decoder_.decode(1, {0, 0, 1, 1}, {nullptr, [](void*, int, int, const std::uint8_t*, std::ptrdiff_t) {}});
}

// Reads what is common and in order. False for all else: libjpeg-turbo knows more kinds, and words for what is wrong.
bool Transcoder::read_common(const std::uint8_t* data, std::size_t size, const TranscodeOptions& options,
                             JpegInfo* info, OutputHeader* header) {
  if (!can_read_bits() || options.max_scans < 1 || !scan_header_.read(data, size)) return false;
  const auto [width, height] = scan_header_.size;
  if (static_cast<std::int64_t>(width) * height > options.max_pixels) return false;
  *header = OutputHeader(scan_header_);
  header->interval = restart_interval(*header, options.tile_width, size - scan_header_.bytes);
  if (!scan_.read(scan_header_, *header, data, size, &tokens_)) return false;
  *info = {width, height, scan_header_.components, 8, false, false, false, !options.check_only};
  return true;
}

}  // namespace fastpipe
