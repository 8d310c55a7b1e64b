// Baseline JPEG bytes -> RGBX rows of a region, at full or reduced size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "image.h"
#include "status.h"

namespace fastpipe {

// Pillow's decompression-bomb error level: a quarter of a GiB of 24-bit pixels, twice over.
constexpr std::int64_t kMaxPixels = 178'956'970;

// Takes decoded rows, top down: `count` rows of RGBX (the fourth byte has no meaning), `stride` bytes apart, the first
// of which is row `y` of the region. May not throw. After the last pixel of a row, 64 bytes are readable.
struct RowSink {
  void* context;
  void (*take)(void* context, int y, int count, const std::uint8_t* rgbx, std::ptrdiff_t stride);
};

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

  // Decodes `region`, given in pixels of the scaled image. One decode an open.
  Status decode(int denominator, Rect region, RowSink sink);

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::vector<std::uint8_t> rows_;
};

}  // namespace fastpipe
