// A KEY.fpc -> RGBX rows of a region, at full or reduced size: the pixels of the JPEG that has the same coefficients.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/image.h"
#include "base/row_sink.h"
#include "base/status.h"
#include "coefficients/block_kernels.h"
#include "coefficients/fpc_header.h"
#include "coefficients/mcu_rows.h"
#include "coefficients/restore.h"
#include "jpeg/decode/jpeg.h"
#include "jpeg/decode/splice.h"
#include "jpeg/decode/strips.h"

namespace fastpipe {

// Decodes one image at a time; a thread keeps one and reuses its memory. Pictures that StripDecoder takes go through
// it; of all others, the part that the region needs becomes a JPEG, which libjpeg-turbo decodes.
class CoefficientDecoder : private StripSource {
 public:
  // Reads the header. The bytes must stay valid until the next open.
  //   known: how many bytes are there already: FpcHeader::bytes of them at least. Those that `needed` names may come
  //   later, up to decode.
  //   size: of the whole file.
  Status open(const std::uint8_t* data, std::size_t known, std::size_t size, std::int64_t max_pixels = kMaxPixels);

  Size size() const { return header_.frame.size; }
  Size scaled_size(int denominator) const { return scaled_down(size(), denominator); }
  const FpcHeader& header() const { return header_; }

  // Bytes [first, end) of the file that decode reads of such a region, besides the header.
  struct Needed {
    std::size_t first;
    std::size_t end;
  };
  Needed needed(int denominator, Rect region) const;

  // Decodes `region`, given in pixels of the scaled image. Of the methods, `baseline` refuses what StripDecoder gives
  // up on.
  Status decode(int denominator, Rect region, RowSink sink, DecodeMethod method = DecodeMethod::best,
                const BlockKernels& kernels = *best_block_kernels());

  // As JpegDecoder::decode_together.
  bool decode_together(const std::vector<CropRows>& crops);

  void give_back() { restorer_.give_back(); }

 private:
  int begin(const StripWindow&) override { return 1; }
  bool read(const StripWindow& strip, const std::array<CoefficientRows, kMostComponents>& to) override;
  int first_read(int left) const override { return left; }
  TileRange mcus_needed(int denominator, Rect region) const;
  bool decode_strips(const CropRows* crops, std::size_t count);
  Status decode_jpeg(int denominator, Rect region, RowSink sink);

  const std::uint8_t* data_ = nullptr;
  FpcHeader header_;
  const BlockKernels* kernels_ = nullptr;
  int damaged_row_ = -1;
  StripDecoder strips_;
  McuRows rows_;
  JpegRestorer restorer_;
  TurboDecoder turbo_;
};

}  // namespace fastpipe
