#include "jpeg/decode/jpeg.h"

namespace fastpipe {

Status JpegDecoder::open(const std::uint8_t* data, std::size_t size, std::int64_t max_pixels) {
  data_ = data;
  size_ = size;
  max_pixels_ = max_pixels;
  state_ = Baseline::unknown;
  common_ = BaselineDecoder::available() && header_.read(data, size) &&
            static_cast<std::int64_t>(header_.size.width) * header_.size.height <= max_pixels;
  turbo_has_it_ = !common_;
  if (common_) {
    image_ = header_.size;
  } else {
    const Status status = turbo_.open(data, size, max_pixels);
    if (!status.ok()) return status;
    image_ = turbo_.size();
  }
  // Before anything is made ready for the pixels: a block takes two bits at least, a DC code and an end.
  const Size blocks = scaled_down(image_, kBlockSide);
  if (static_cast<std::uint64_t>(blocks.width) * static_cast<std::uint64_t>(blocks.height) * 2 > size * 8) {
    return error(Code::truncated, "%zu bytes cannot hold %d x %d pixels", size, image_.width, image_.height);
  }
  return {};
}

Status JpegDecoder::decode(int denominator, Rect region, RowSink sink, DecodeMethod method) {
  const Size whole = scaled_size(denominator);
  if (!region.inside(whole)) {
    return error(Code::bad_crop, "columns %d + %d, rows %d + %d of %d x %d", region.x, region.width, region.y,
                 region.height, whole.width, whole.height);
  }
  const CropRows crop = {{denominator, region}, sink};
  if (method != DecodeMethod::libjpeg && open_baseline() && baseline_.decode(&crop, 1)) return {};
  if (method == DecodeMethod::baseline) return error(Code::unsupported, "the baseline decoder gave up");
  if (!turbo_has_it_) {
    const Status status = turbo_.open(data_, size_, max_pixels_);
    if (!status.ok()) return status;
  }
  turbo_has_it_ = false;
  return turbo_.decode(denominator, region, sink);
}

bool JpegDecoder::decode_together(const std::vector<CropRows>& crops) {
  return open_baseline() && baseline_.decode(crops.data(), crops.size());
}

bool JpegDecoder::open_baseline() {
  if (state_ == Baseline::unknown) {
    const std::size_t intervals = common_ ? header_.intervals_of_grid() : 0;
    const bool good = intervals > 0 && map_.find(data_ + header_.bytes, size_ - header_.bytes, intervals) &&
                      baseline_.open(header_, map_, data_ + size_);
    state_ = good ? Baseline::open : Baseline::refuses;
  }
  return state_ == Baseline::open;
}

}  // namespace fastpipe
