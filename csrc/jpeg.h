// Baseline JPEG bytes -> RGBX rows of a region, at full or reduced size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "image.h"
#include "jpeg_rows.h"
#include "restart_map.h"
#include "status.h"
#include "strips.h"

namespace fastpipe {

// Pillow's decompression-bomb error level: a quarter of a GiB of 24-bit pixels, twice over.
constexpr std::int64_t kMaxPixels = 178'956'970;

// Who decodes: tests compare the two; all others leave the choice to the decoder.
enum class DecodeMethod { best, strips, libjpeg };

// Decodes one image at a time; a thread keeps one and reuses its memory. What is decoded of a region is bit-identical
// to the same region of a full libjpeg-turbo decode (accurate integer DCT, fancy upsampling).
class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(JpegDecoder&&) noexcept;
  JpegDecoder& operator=(JpegDecoder&&) = delete;

  // Reads the header. The bytes must stay valid until the next open. Refuses, before it allocates for pixels, what is
  // over `max_pixels` and what `pack` does not write: progressive, arithmetic, several scans, CMYK.
  Status open(const std::uint8_t* data, std::size_t size, std::int64_t max_pixels = kMaxPixels);

  // The image's size, after open.
  Size size() const;

  // The size at scale 1/denominator (1, 2, 4 or 8).
  Size scaled_size(int denominator) const;

  // Decodes `region`, given in pixels of the scaled image. One decode an open. Where restart markers make tiles, only
  // those that the region touches are read. Of the methods, `strips` refuses what it gives up on.
  Status decode(int denominator, Rect region, RowSink sink, DecodeMethod method = DecodeMethod::best);

 private:
  struct State;

  Status read_header(const std::uint8_t* data, std::size_t size, std::int64_t max_pixels);
  Status decode_rows(int denominator, Rect region, RowSink sink);
  Status cut_out(int denominator, Rect* region);
  bool decode_strips(Rect region, RowSink sink);

  std::unique_ptr<State> state_;
  const std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
  RestartMap map_;
  StripDecoder strips_;
  std::vector<std::uint8_t> part_;  // the JPEG of the tiles needed
  std::vector<std::uint8_t> rows_;
};

}  // namespace fastpipe
