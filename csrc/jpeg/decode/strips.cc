#include "jpeg/decode/strips.h"

#include <algorithm>

#include "base/at_least.h"

namespace fastpipe {

namespace {

// Its place among 1, 2, 4 and 8.
std::size_t scale_of(int denominator) { return denominator == 8 ? 3 : static_cast<std::size_t>(denominator / 2); }

}  // namespace

bool StripDecoder::available() { return best_idct_kernels() != &kScalarIdct && best_color_kernels() != &kScalarColor; }

bool StripDecoder::decode(StripPicture picture, const CropRows* crops, std::size_t count, StripSource* source) {
  if (crops->sink.form.channels == 1) picture.components = 1;
  const bool good = decode_all(picture, crops, count, source);
  give_back_if_giant(&coefficient_memory_);
  for (ScaledStrips& scale : scales_) scale.give_back();
  return good;
}

bool StripDecoder::decode_all(const StripPicture& picture, const CropRows* crops, std::size_t count,
                              StripSource* source) {
  for (std::size_t i = 0; i < kScales; ++i) scales_[i].begin(picture, 1 << i);
  windows_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    windows_.push_back(scales_[scale_of(crops[i].crop.denominator)].add(crops[i]));
  }
  all_ = {};
  for (const ScaledStrips& scale : scales_) {
    if (!scale.window().empty() && !scale.can_upsample()) return false;
    all_ = all_.with(scale.window());
  }
  if (count > 1 && !cheaper_together(*source)) return false;
  const int rows = source->begin(all_);
  lay_out(picture, rows);
  for (int top = all_.top; top < all_.bottom; top += rows) {
    const StripWindow strip = window(top, std::min(top + rows, all_.bottom));
    if (strip.empty()) continue;  // between two crops
    if (!source->read(strip, coefficients_)) return false;
    for (ScaledStrips& scale : scales_) {
      if (!scale.take(strip, coefficients_)) return false;
    }
  }
  return true;
}

// What is read of rows [top, bottom).
StripWindow StripDecoder::window(int top, int bottom) const {
  StripWindow found;
  for (const StripWindow& each : windows_) {
    if (each.has_rows_of(top, bottom)) found = found.with(each);
  }
  found.top = top;
  found.bottom = bottom;
  return found;
}

bool StripDecoder::cheaper_together(const StripSource& source) const {
  const auto mcus_read = [&source](const StripWindow& each) {
    return each.empty() ? 0 : (each.bottom - each.top) * (each.right - source.first_read(each.left));
  };
  int apart = 0, together = 0;
  for (const StripWindow& each : windows_) apart += mcus_read(each);
  for (int row = all_.top; row < all_.bottom; ++row) together += mcus_read(window(row, row + 1));
  return together <= apart;
}

void StripDecoder::lay_out(const StripPicture& picture, int strip_rows) {
  std::size_t count = 0;
  std::array<std::size_t, kMostComponents> begins = {};
  coefficients_ = {};
  for (std::size_t c = 0; c < static_cast<std::size_t>(picture.components); ++c) {
    coefficients_[c].pairs = ceil_div((all_.right - all_.left) * (c == 0 ? picture.across : 1), 2);
    begins[c] = count;
    count += static_cast<std::size_t>(coefficients_[c].pairs) *
             static_cast<std::size_t>(strip_rows * (c == 0 ? picture.down : 1)) * CoefficientRows::kPairStride;
  }
  std::int16_t* const first = aligned_at_least(&coefficient_memory_, count);
  for (std::size_t c = 0; c < static_cast<std::size_t>(picture.components); ++c) {
    coefficients_[c].first = first + begins[c];
  }
  for (ScaledStrips& scale : scales_) {
    if (!scale.window().empty()) scale.lay_out(strip_rows);
  }
}

}  // namespace fastpipe
