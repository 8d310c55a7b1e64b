#include "coefficients/coefficient_decoder.h"

namespace fastpipe {

Status CoefficientDecoder::open(const std::uint8_t* data, std::size_t known, std::size_t size,
                                std::int64_t max_pixels) {
  data_ = data;
  return header_.read(data, known, size, max_pixels);
}

// Of blocks with such means, differences fit into a JPEG only where its restart intervals begin anew: it must be whole.
TileRange CoefficientDecoder::mcus_needed(int denominator, Rect region) const {
  const OutputHeader& frame = header_.frame;
  const Size mcus = frame.mcus();
  if (header_.high_dc) return {mcus.width, 0, mcus.width, 0, mcus.height};
  return tiles_needed(frame.size, frame.mcu_size(), mcus, denominator, region);
}

CoefficientDecoder::Needed CoefficientDecoder::needed(int denominator, Rect region) const {
  const TileRange range = mcus_needed(denominator, region);
  return {header_.row(range.row), header_.row(range.row + range.rows) + kFpcPadding};
}

Status CoefficientDecoder::decode(int denominator, Rect region, RowSink sink, DecodeMethod method,
                                  const BlockKernels& kernels) {
  const Size whole = scaled_size(denominator);
  if (!region.inside(whole)) {
    return error(Code::bad_crop, "columns %d + %d, rows %d + %d of %d x %d", region.x, region.width, region.y,
                 region.height, whole.width, whole.height);
  }
  kernels_ = &kernels;
  damaged_row_ = -1;
  const CropRows crop = {{denominator, region}, sink};
  if (method != DecodeMethod::libjpeg && decode_strips(&crop, 1)) return {};
  if (damaged_row_ >= 0) return error(Code::coefficients_damaged, "in MCU row %d", damaged_row_);
  if (method == DecodeMethod::baseline) return error(Code::unsupported, "the baseline decoder gave up");
  return decode_jpeg(denominator, region, sink);
}

bool CoefficientDecoder::decode_together(const std::vector<CropRows>& crops) {
  kernels_ = best_block_kernels();
  return decode_strips(crops.data(), crops.size());
}

bool CoefficientDecoder::read(const StripWindow& strip, const std::array<CoefficientRows, kMostComponents>& to) {
  if (rows_.read(header_, data_, strip.top, strip.left, strip.right, *kernels_, to)) return true;
  damaged_row_ = strip.top;
  return false;
}

bool CoefficientDecoder::decode_strips(const CropRows* crops, std::size_t count) {
  const OutputHeader& frame = header_.frame;
  if (!StripDecoder::available() || frame.rgb) return false;
  StripPicture picture = {frame.size, static_cast<int>(frame.components), frame.across(0), frame.down(0), {}};
  for (std::size_t c = 0; c < frame.components; ++c) {
    const int most = c == 0 ? 2 : 1;
    if (frame.across(c) > most || frame.down(c) > most) return false;
    picture.quant[c] = frame.quant[frame.component[c].quant].data();
  }
  return strips_.decode(picture, crops, count, this);
}

Status CoefficientDecoder::decode_jpeg(int denominator, Rect region, RowSink sink) {
  const OutputHeader& frame = header_.frame;
  const Size mcu = frame.mcu_size();
  const TileRange range = mcus_needed(denominator, region);
  Status status = restorer_.part(header_, data_, range, size_of(range, frame.size, mcu), *kernels_);
  if (status.ok()) status = turbo_.open(restorer_.jpeg(), restorer_.jpeg_bytes(), kMostPixelsOfPart);
  if (!status.ok()) return status;
  region.x -= range.column * mcu.width / denominator;
  region.y -= range.row * mcu.height / denominator;
  return turbo_.decode(denominator, region, sink);
}

}  // namespace fastpipe
