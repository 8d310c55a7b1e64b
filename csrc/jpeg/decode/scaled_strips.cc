#include "jpeg/decode/scaled_strips.h"

#include <algorithm>
#include <cstring>

#include "base/at_least.h"

namespace fastpipe {

namespace {

constexpr int kRowsPerCall = 8;
constexpr int kBytesPerPixel = 4;

// Vector code reads and writes beyond the ends of rows.
constexpr std::ptrdiff_t kSlack = 2 * kColorStep;

}  // namespace

// Reduced, a block of brightness becomes smaller; one of colour too, unless it can have its full size and save the
// upsampling: libjpeg doubles it as long as it fits in both directions.
void ScaledStrips::begin(const StripPicture& picture, int denominator) {
  idct_ = best_idct_kernels();
  color_ = best_color_kernels();
  picture_ = &picture;
  wanted_.clear();
  window_ = {};
  const int light = kBlockSide / denominator;
  int colour = light;
  while (colour < kBlockSide && picture.across * light % (2 * colour) == 0 &&
         picture.down * light % (2 * colour) == 0) {
    colour *= 2;
  }
  planes_[0].block = light;
  planes_[1].block = planes_[2].block = colour;
  wide_ = picture.components == 1 ? 1 : picture.across * light / colour;
  high_ = picture.components == 1 ? 1 : picture.down * light / colour;
  mcu_ = {light * picture.across, light * picture.down};
}

bool ScaledStrips::can_upsample() const {
  if (picture_->components == 1 || wide_ * high_ == 1) return true;
  // Where there is but one pixel a block, or at most two samples in a row, libjpeg repeats samples; that is too rare.
  constexpr int kMostRepeated = 2;
  return planes_[0].block > 1 && (wide_ == 1 || colour_size().width > kMostRepeated);
}

// Of the planes of colour, in samples.
Size ScaledStrips::colour_size() const {
  const int block = planes_[1].block;
  return {ceil_div(picture_->size.width * block, picture_->across * kBlockSide),
          ceil_div(picture_->size.height * block, picture_->down * kBlockSide)};
}

StripWindow ScaledStrips::window_of(const Rect& region) const {
  const int beside = wide_ == 2 ? 2 : 0, above = high_ == 2 ? 2 : 0;  // Note [upsampling margin]
  return {std::max(region.x - beside, 0) / mcu_.width,
          std::min(ceil_div(region.x + region.width + beside, mcu_.width), picture_->mcus_per_row()),
          std::max(region.y - above, 0) / mcu_.height,
          std::min(ceil_div(region.y + region.height + above, mcu_.height), picture_->mcu_rows())};
}

StripWindow ScaledStrips::add(const CropRows& rows) {
  const Rect& region = rows.crop.region;
  y_ = wanted_.empty() ? region.y : std::min(y_, region.y);
  wanted_.push_back({region, rows.sink, window_of(region)});
  window_ = window_.with(wanted_.back().window);
  return wanted_.back().window;
}

StripWindow ScaledStrips::window(int top, int bottom) const {
  StripWindow found;
  for (const Wanted& each : wanted_) {
    if (each.window.has_rows_of(top, bottom)) found = found.with(each.window);
  }
  return found;
}

void ScaledStrips::lay_out(int strip_rows) {
  std::size_t samples = 0;
  std::array<std::size_t, kMostComponents> samples_at = {};
  for (std::size_t c = 0; c < static_cast<std::size_t>(picture_->components); ++c) {
    const int across = c == 0 ? picture_->across : 1, down = c == 0 ? picture_->down : 1;
    Plane& plane = planes_[c];
    plane.samples = (window_.right - window_.left) * across * plane.block;
    plane.stride = plane.samples + plane.block + 2 * kSlack;
    samples_at[c] = samples + static_cast<std::size_t>(plane.stride + kSlack);
    samples += static_cast<std::size_t>(plane.stride) * (strip_rows * down * plane.block + 2);
  }
  std::uint8_t* const first = at_least(&plane_memory_, samples + kSlack);
  for (std::size_t c = 0; c < static_cast<std::size_t>(picture_->components); ++c) {
    planes_[c].first = first + samples_at[c];
  }
  const int most = std::min((window_.right - window_.left) * mcu_.width, picture_->size.width);
  row_stride_ = static_cast<std::ptrdiff_t>(most) * kBytesPerPixel + kSlack;
  at_least(&rows_, static_cast<std::size_t>(row_stride_ * kRowsPerCall + kSlack));
}

bool ScaledStrips::take(const StripWindow& strip, const std::array<CoefficientRows, kMostComponents>& coefficients) {
  StripWindow wanted = window(strip.top, strip.bottom);
  if (wanted.empty()) return true;
  wanted.left -= (wanted.left - strip.left) % 2;  // blocks come in pairs
  if (!transform(wanted, strip, coefficients)) return false;
  mend_edges(strip.top, strip.bottom);
  // The last row of a strip is upsampled with the first of the next.
  const int held_back = high_ == 2 && strip.bottom < window_.bottom ? 1 : 0;
  give_rows(strip.bottom * mcu_.height - held_back, strip.top, wanted);
  keep_last_rows(strip.bottom - strip.top);
  return true;
}

bool ScaledStrips::transform(const StripWindow& wanted, const StripWindow& strip,
                             const std::array<CoefficientRows, kMostComponents>& coefficients) {
  bool good = true;
  for (std::size_t c = 0; c < static_cast<std::size_t>(picture_->components); ++c) {
    const Plane& plane = planes_[c];
    const IdctPair pair = idct_->pair(plane.block);
    const IdctQuad quad = plane.block == kBlockSide ? idct_->quad : nullptr;
    const int across = c == 0 ? picture_->across : 1;
    const int rows = (strip.bottom - strip.top) * (c == 0 ? picture_->down : 1);
    const int first = (wanted.left - strip.left) * across, end = (wanted.right - strip.left) * across;
    const std::ptrdiff_t beside = static_cast<std::ptrdiff_t>(strip.left - window_.left) * across * plane.block;
    for (int row = 0; row < rows; ++row) {
      std::uint8_t* const to = plane.row(row * plane.block) + beside;
      int column = first;
      for (; quad != nullptr && column + 2 < end; column += 4) {
        good &= quad(coefficients[c].block(row, column), coefficients[c].block(row, column + 2), picture_->quant[c],
                     to + column * plane.block, plane.stride);
      }
      for (; column < end; column += 2) {
        good &= pair(coefficients[c].block(row, column), picture_->quant[c], to + column * plane.block, plane.stride);
      }
    }
  }
  return good;
}

// The picture's edge repeats itself: beyond it lies padding of whole blocks, which upsampling must not see.
void ScaledStrips::mend_edges(int top, int bottom) {
  if (picture_->components == 1) return;
  for (std::size_t c = 1; c < kMostComponents; ++c) {
    const Plane& plane = planes_[c];
    const int rows = (bottom - top) * plane.block;
    if (wide_ == 2) {
      const int real = colour_size().width - window_.left * plane.block;
      for (int y = 0; y < rows; ++y) {
        std::uint8_t* const row = plane.row(y);
        if (window_.left == 0) row[-1] = row[0];
        if (real <= plane.samples) row[real] = row[real - 1];
      }
    }
    if (high_ == 2) {
      const int real = colour_size().height - top * plane.block;
      if (top == 0) copy_row(plane, 0, -1);
      if (real <= rows) copy_row(plane, real - 1, real);
    }
  }
}

void ScaledStrips::keep_last_rows(int rows) {
  if (high_ != 2) return;
  copy_row(planes_[0], rows * picture_->down * planes_[0].block - 1, -1);
  copy_row(planes_[1], rows * planes_[1].block - 1, -1);
  copy_row(planes_[2], rows * planes_[2].block - 1, -1);
}

void ScaledStrips::copy_row(const Plane& plane, int from, int to) {
  std::memcpy(plane.row(to) - 1, plane.row(from) - 1, static_cast<std::size_t>(plane.samples) + 2);
}

void ScaledStrips::give_rows(int end, int strip_top, const StripWindow& wanted) {
  while (true) {
    // Rows that no crop wants are left out.
    int first = end;
    for (const Wanted& each : wanted_) {
      if (each.region.y + each.region.height > y_) first = std::min(first, std::max(each.region.y, y_));
    }
    if (first >= end) return;
    int bottom = first;
    int left = picture_->size.width, right = 0;
    for (const Wanted& each : wanted_) {
      const int last = std::min({each.region.y + each.region.height, first + kRowsPerCall, end});
      if (each.region.y >= std::min(first + kRowsPerCall, end) || last <= first) continue;
      bottom = std::max(bottom, last);
      left = std::min(left, each.region.x);
      right = std::max(right, each.region.x + each.region.width);
    }
    const bool gray = wanted_.front().sink.form.channels == 1;
    for (int y = first; y < bottom && !gray; ++y) {
      convert_row(y, strip_top, wanted, left, right, rows_.data() + (y - first) * row_stride_);
    }
    for (const Wanted& each : wanted_) {
      const int from = std::max(first, each.region.y), to = std::min(bottom, each.region.y + each.region.height);
      if (from >= to) continue;
      const std::uint8_t* row = rows_.data() + (from - first) * row_stride_ + (each.region.x - left) * kBytesPerPixel;
      if (gray) row = planes_[0].row(from - strip_top * mcu_.height) + each.region.x - window_.left * mcu_.width;
      each.sink.take(each.sink.context, from - each.region.y, to - from, row, gray ? planes_[0].stride : row_stride_);
    }
    y_ = bottom;
  }
}

void ScaledStrips::convert_row(int y, int strip_top, const StripWindow& wanted, int left, int right,
                               std::uint8_t* out) {
  const int x = left - window_.left * mcu_.width;
  const std::uint8_t* const light = planes_[0].row(y - strip_top * mcu_.height) + x;
  if (picture_->components == 1) return color_->gray_to_rgbx(light, out, right - left);
  const std::uint8_t* const cb = color_row(planes_[1], y, strip_top, wanted, &cb_) + x;
  const std::uint8_t* const cr = color_row(planes_[2], y, strip_top, wanted, &cr_) + x;
  color_->ycc_to_rgbx(light, cb, cr, out, right - left);
}

// A row of a colour at full size, from the window's first column on; only where it is wanted.
const std::uint8_t* ScaledStrips::color_row(const Plane& plane, int y, int strip_top, const StripWindow& wanted,
                                            std::vector<std::uint8_t>* memory) {
  const int row = y / high_ - strip_top * plane.block;
  if (wide_ == 1 && high_ == 1) return plane.row(row);
  const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(wanted.left - window_.left) * plane.block;
  const int columns = (wanted.right - wanted.left) * plane.block;
  std::uint8_t* const begin =
      at_least(memory, static_cast<std::size_t>((plane.samples + plane.block) * wide_ + 2 * kSlack)) + kSlack;
  std::uint8_t* const out = begin + first * wide_;
  const std::uint8_t* const near = plane.row(row) + first;
  if (high_ == 1) {
    color_->twice_as_wide(near, out, columns);
    return begin;
  }
  const bool upper = y % 2 == 0;
  const std::uint8_t* const far = plane.row(upper ? row - 1 : row + 1) + first;
  if (wide_ == 1) {
    color_->twice_as_high(near, far, upper ? 1 : 2, out, columns);
  } else {
    std::uint16_t* const sums = at_least(&sums_, static_cast<std::size_t>(columns + kSlack));
    color_->three_to_one(near - 1, far - 1, sums, columns + 2);
    color_->twice_as_wide_sums(sums + 1, out, columns);
  }
  return begin;
}

}  // namespace fastpipe
