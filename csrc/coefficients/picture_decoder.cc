#include "coefficients/picture_decoder.h"

#include <algorithm>

namespace fastpipe {

Status PictureDecoder::open(const std::uint8_t* data, std::size_t known, std::size_t size, std::int64_t max_pixels) {
  stored_ = is_fpc(data, known);
  if (stored_) return coefficients_.open(data, known, size, max_pixels);
  if (known < size) return error(Code::not_coefficients, "%s", "the dataset says that its pictures are");
  return jpeg_.open(data, size, max_pixels);
}

Status PictureDecoder::decode(int denominator, Rect region, RowSink sink, DecodeMethod method,
                              const BlockKernels& kernels) {
  if (stored_) return coefficients_.decode(denominator, region, sink, method, kernels);
  return jpeg_.decode(denominator, region, sink, method);
}

bool PictureDecoder::decode_together(const std::vector<CropRows>& crops) {
  const bool inside = std::all_of(crops.begin(), crops.end(), [this](const CropRows& each) {
    return each.crop.region.inside(scaled_size(each.crop.denominator));
  });
  return inside && (stored_ ? coefficients_.decode_together(crops) : jpeg_.decode_together(crops));
}

}  // namespace fastpipe
