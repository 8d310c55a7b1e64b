// A picture as a shard holds it, JPEG, KEY.fpc, PNG or KEY.tif -> rows of a region, at full or reduced size, in the
// form that is wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/image.h"
#include "base/row_sink.h"
#include "base/status.h"
#include "coefficients/coefficient_decoder.h"
#include "engine/form_rows.h"
#include "jpeg/decode/jpeg.h"
#include "png/png_decoder.h"
#include "tiled/tiled_decoder.h"

namespace fastpipe {

// Tells them apart by their first bytes. Decodes one image at a time; a thread keeps one and reuses its memory.
class PictureDecoder {
 public:
  enum class Kind : std::uint8_t { jpeg, coefficients, png, tiled };

  // As JpegDecoder::open.
  Status open(const std::uint8_t* data, std::size_t size, std::int64_t max_pixels = kMaxPixels) {
    return open(data, size, size, {}, max_pixels);
  }

  // Of a KEY.fpc and a KEY.tif not all bytes need be there: as CoefficientDecoder::open and TiledDecoder::open.
  Status open(const std::uint8_t* data, std::size_t known, std::size_t size, PartReader rest, std::int64_t max_pixels);

  // Bytes [first, end) that decode reads of such a region. Of a KEY.fpc.
  CoefficientDecoder::Needed needed(int denominator, Rect region) const {
    return coefficients_.needed(denominator, region);
  }

  Size size() const;
  Size scaled_size(int denominator) const { return scaled_down(size(), denominator); }
  bool is_coefficients() const { return kind_ == Kind::coefficients; }
  bool is_tiled() const { return kind_ == Kind::tiled; }
  bool is_png() const { return kind_ == Kind::png; }
  // Whether it has reduced sizes; else its denominator is 1.
  bool has_scales() const { return !is_png() && !(is_tiled() && tiled_.has_pngs()); }

  // As JpegDecoder::decode, in the form of the sink. The kernels are those for a KEY.fpc.
  Status decode(int denominator, Rect region, RowSink sink, DecodeMethod method = DecodeMethod::best,
                const BlockKernels& kernels = *best_block_kernels());

  // As JpegDecoder::decode_together; false, too, where the sinks are of several forms.
  bool decode_together(const std::vector<CropRows>& crops);

  // Decodes all of a KEY.tif, without memory for the whole picture.
  Status check_tiles() { return tiled_.check(); }

  // Lets go of memory that only a giant picture needs.
  void give_back() {
    coefficients_.give_back();
    tiled_.give_back();
    png_.give_back();
    give_back_if_giant(&room_);
    for (FormRows& each : converters_) each.give_back();
  }

 private:
  bool decode_pngs(const std::vector<CropRows>& crops);

  Kind kind_ = Kind::jpeg;
  JpegDecoder jpeg_;
  CoefficientDecoder coefficients_;
  PngDecoder png_;
  TiledDecoder tiled_;
  std::vector<std::uint8_t> room_;    // rows of a PNG
  std::vector<FormRows> converters_;  // of crops of a JPEG; the first is that of a single one
  std::vector<CropRows> crops_;
};

}  // namespace fastpipe
