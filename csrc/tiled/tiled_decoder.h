// A KEY.tif, a picture in JPEGs or PNGs of its tiles -> rows of a region.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/image.h"
#include "base/row_sink.h"
#include "base/status.h"
#include "jpeg/decode/jpeg.h"
#include "png/png_decoder.h"
#include "tiled/tiled_header.h"

namespace fastpipe {

// Reads bytes of a file that are not in memory.
struct PartReader {
  void* context = nullptr;
  Status (*read)(void* context, std::uint64_t first, std::uint8_t* out, std::size_t count) = nullptr;
};

// Reads and decodes the tiles that a region touches, one row of tiles at a time: time and memory do not depend on the
// size of the picture. Decodes one picture at a time; a thread keeps one and reuses its memory.
class TiledDecoder {
 public:
  // Reads the header. The first `known` bytes of the file must stay valid until the next open, and so must `rest`,
  // which reads the others.
  Status open(const std::uint8_t* data, std::size_t known, std::size_t size, PartReader rest, std::int64_t max_pixels);

  Size size() const { return header_.size; }
  bool has_pngs() const { return header_.is_png; }  // which have no reduced size: the denominator is 1

  // As JpegDecoder::decode; the sink gets the rows of PNGs in its form. A tile has the pixels of its own JPEG: no
  // colours are interpolated across its edges.
  Status decode(int denominator, Rect region, RowSink sink, DecodeMethod method);

  // Decodes each tile of the whole picture and forgets it.
  Status check();

  // Lets go of memory that only a giant picture needs.
  void give_back() {
    give_back_if_giant(&bytes_);
    give_back_if_giant(&band_);
    png_.give_back();
  }

 private:
  // The tiles of a row of tiles, from the first to before the end.
  struct Band {
    int row = 0;
    int first = 0;
    int end = 0;
  };

  Status read(std::uint64_t first, void* out, std::size_t count) const;
  Status read_places(const Band& band);
  Status open_tile(int index);
  Status decode_tile(int denominator, Rect part, RowSink sink, DecodeMethod method);

  const std::uint8_t* data_ = nullptr;
  std::size_t known_ = 0;
  std::size_t size_ = 0;
  PartReader rest_;
  TiledHeader header_;
  std::vector<std::uint64_t> offsets_;  // of the tiles of a band
  std::vector<std::uint32_t> sizes_;
  std::vector<std::uint8_t> bytes_;  // of the tile at hand
  std::vector<std::uint8_t> band_;   // rows of pixels
  std::vector<std::uint8_t> room_;   // of rows of a PNG
  JpegDecoder jpeg_;
  PngDecoder png_;
};

}  // namespace fastpipe
