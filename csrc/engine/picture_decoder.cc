#include "engine/picture_decoder.h"

#include <algorithm>

#include "png/png_rows.h"

namespace fastpipe {

namespace {

PictureDecoder::Kind kind_of(const std::uint8_t* data, std::size_t known) {
  using Kind = PictureDecoder::Kind;
  if (is_fpc(data, known)) return Kind::coefficients;
  if (has_png_signature(data, known)) return Kind::png;
  return is_tiled(data, known) ? Kind::tiled : Kind::jpeg;
}

}  // namespace

Status PictureDecoder::open(const std::uint8_t* data, std::size_t known, std::size_t size, PartReader rest,
                            std::int64_t max_pixels) {
  kind_ = kind_of(data, known);
  if (kind_ == Kind::coefficients) return coefficients_.open(data, known, size, max_pixels);
  if (kind_ == Kind::tiled) return tiled_.open(data, known, size, rest, max_pixels);
  if (known < size) return error(Code::not_coefficients, "%s", "the dataset says that its pictures are");
  return is_png() ? png_.open(data, size, max_pixels) : jpeg_.open(data, size, max_pixels);
}

Size PictureDecoder::size() const {
  switch (kind_) {
    case Kind::png:
      return png_.header().size;
    case Kind::coefficients:
      return coefficients_.size();
    case Kind::tiled:
      return tiled_.size();
    case Kind::jpeg:
      break;
  }
  return jpeg_.size();
}

Status PictureDecoder::decode(int denominator, Rect region, RowSink sink, DecodeMethod method,
                              const BlockKernels& kernels) {
  if (is_png()) {
    const Status status = png_.decode(region.y, region.height);
    return status.ok() ? png_rows(png_, region, sink, &room_) : status;
  }
  if (is_tiled() && tiled_.has_pngs()) return tiled_.decode(denominator, region, sink, method);
  if (converters_.empty()) converters_.resize(1);
  sink = converters_.front().before(sink, region.width);
  if (kind_ == Kind::coefficients) return coefficients_.decode(denominator, region, sink, method, kernels);
  if (kind_ == Kind::tiled) return tiled_.decode(denominator, region, sink, method);
  return jpeg_.decode(denominator, region, sink, method);
}

bool PictureDecoder::decode_together(const std::vector<CropRows>& crops) {
  const bool good = std::all_of(crops.begin(), crops.end(), [&](const CropRows& each) {
    return each.crop.region.inside(scaled_size(each.crop.denominator)) && each.sink.form == crops.front().sink.form;
  });
  if (!good) return false;
  if (is_tiled()) return false;  // crops of a large picture rarely have tiles in common
  if (is_png()) return decode_pngs(crops);
  if (converters_.size() < crops.size()) converters_.resize(crops.size());
  crops_ = crops;
  for (std::size_t i = 0; i < crops.size(); ++i) {
    crops_[i].sink = converters_[i].before(crops[i].sink, crops[i].crop.region.width);
  }
  return kind_ == Kind::coefficients ? coefficients_.decode_together(crops_) : jpeg_.decode_together(crops_);
}

// Inflates the rows of all crops once.
bool PictureDecoder::decode_pngs(const std::vector<CropRows>& crops) {
  int first = size().height, end = 0;
  for (const CropRows& each : crops) {
    first = std::min(first, each.crop.region.y);
    end = std::max(end, each.crop.region.y + each.crop.region.height);
  }
  return png_.decode(first, end - first).ok() && std::all_of(crops.begin(), crops.end(), [this](const CropRows& each) {
           return png_rows(png_, each.crop.region, each.sink, &room_).ok();
         });
}

}  // namespace fastpipe
