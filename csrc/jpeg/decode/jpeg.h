// Baseline JPEG bytes -> rows of gray or RGBX of a region, at full or reduced size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/image.h"
#include "base/row_sink.h"
#include "base/status.h"
#include "jpeg/decode/baseline_decoder.h"
#include "jpeg/decode/crop_region.h"
#include "jpeg/decode/turbo.h"
#include "jpeg/parsed_header.h"
#include "jpeg/restart_map.h"

namespace fastpipe {

// Who decodes: tests compare the two; all others leave the choice to the decoder.
enum class DecodeMethod { best, baseline, libjpeg };

// Decodes one image at a time; a thread keeps one and reuses its memory. What is decoded of a region is bit-identical
// to the same region of a full libjpeg-turbo decode (accurate integer DCT, fancy upsampling).
// Common pictures are decoded by BaselineDecoder, all others, and all that is odd, by libjpeg-turbo.
class JpegDecoder {
 public:
  // Reads the header. The bytes must stay valid until the next open. Refuses, before it allocates for pixels, what is
  // over `max_pixels` and what `pack` does not write: progressive, arithmetic, several scans, CMYK.
  Status open(const std::uint8_t* data, std::size_t size, std::int64_t max_pixels = kMaxPixels);

  // The image's size, after open.
  Size size() const { return image_; }

  // The size at scale 1/denominator (1, 2, 4 or 8).
  Size scaled_size(int denominator) const { return scaled_down(image_, denominator); }

  // Decodes `region`, given in pixels of the scaled image. Where restart markers make tiles, only those that the region
  // touches are read. Of the methods, `baseline` refuses what it gives up on.
  Status decode(int denominator, Rect region, RowSink sink, DecodeMethod method = DecodeMethod::best);

  // Decodes several crops at once: Note [crops together]. False where each is to be decoded by itself; rows may then
  // have been given already.
  bool decode_together(const std::vector<CropRows>& crops);

 private:
  bool open_baseline();

  const std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
  std::int64_t max_pixels_ = 0;
  Size image_;
  bool common_ = false;        // header_ is of this image
  bool turbo_has_it_ = false;  // turbo_ has read the header and not decoded yet
  enum class Baseline { unknown, open, refuses } state_ = Baseline::unknown;
  ParsedHeader header_;
  RestartMap map_;
  BaselineDecoder baseline_;
  TurboDecoder turbo_;
};

}  // namespace fastpipe
