// JPEG bytes -> rows of gray or RGBX of a region, by libjpeg-turbo.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/image.h"
#include "base/row_sink.h"
#include "base/status.h"
#include "jpeg/restart_map.h"

namespace fastpipe {

// For a part of a picture: the whole has been let in.
constexpr std::int64_t kMostPixelsOfPart = INT64_MAX;

// Decodes one image at a time; a thread keeps one and reuses its memory. What is decoded of a region is bit-identical
// to the same region of a full decode (accurate integer DCT, fancy upsampling).
class TurboDecoder {
 public:
  TurboDecoder();
  ~TurboDecoder();
  TurboDecoder(TurboDecoder&&) noexcept;
  TurboDecoder& operator=(TurboDecoder&&) = delete;

  // Reads the header. The bytes must stay valid until the next open. Refuses, before it allocates for pixels, what is
  // over `max_pixels` and what `pack` does not write: progressive, arithmetic, several scans, CMYK.
  Status open(const std::uint8_t* data, std::size_t size, std::int64_t max_pixels);

  // The image's size, after open.
  Size size() const;

  // Decodes `region`, in pixels of the picture at 1/denominator of its size (1, 2, 4 or 8), inside which it lies. One
  // decode an open. Where restart markers make a grid of tiles, only those that the region touches are read.
  Status decode(int denominator, Rect region, RowSink sink);

 private:
  struct State;

  Status read_header(const std::uint8_t* data, std::size_t size, std::int64_t max_pixels);
  Status decode_rows(int denominator, Rect region, RowSink sink);
  Status cut_out(int denominator, Rect* region);

  std::unique_ptr<State> state_;
  const std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
  RestartMap map_;
  bool read_to_end_ = false;        // Note [cutting out]
  std::vector<std::uint8_t> part_;  // the JPEG of the tiles needed
  std::vector<std::uint8_t> rows_;
};

}  // namespace fastpipe
