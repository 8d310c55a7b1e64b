#include "jpeg/decode/strips.h"

#include <algorithm>
#include <cstring>

namespace fastpipe {

namespace {

constexpr int kRowsPerCall = 8;
constexpr int kBytesPerPixel = 4;

// Vector code reads and writes beyond the ends of rows.
constexpr std::ptrdiff_t kSlack = 2 * kColorStep;
constexpr std::size_t kAlignment = 64;

// The first element of `memory` that is aligned, once it has room for `count` from there.
template <typename Element>
Element* aligned(std::vector<Element>* memory, std::size_t count) {
  const std::size_t needed = count + kAlignment / sizeof(Element);
  if (memory->size() < needed) memory->resize(needed);
  const auto address = reinterpret_cast<std::uintptr_t>(memory->data());
  return memory->data() + (kAlignment - address % kAlignment) % kAlignment / sizeof(Element);
}

template <typename Element>
Element* at_least(std::vector<Element>* memory, std::size_t count) {
  if (memory->size() < count) memory->resize(count);
  return memory->data();
}

}  // namespace

bool StripDecoder::available() { return best_idct_kernels() != &kScalarIdct && best_color_kernels() != &kScalarColor; }

bool StripDecoder::decode(const StripPicture& picture, int denominator, Rect region, StripSource* source,
                          RowSink sink) {
  const bool good = decode_all(picture, denominator, region, source, sink);
  give_back_if_giant(&coefficient_memory_);
  give_back_if_giant(&plane_memory_);
  return good;
}

bool StripDecoder::decode_all(const StripPicture& picture, int denominator, Rect region, StripSource* source,
                              RowSink sink) {
  idct_ = best_idct_kernels();
  color_ = best_color_kernels();
  picture_ = &picture;
  region_ = region;
  scale(denominator);
  if (!can_upsample()) return false;
  plan_window();
  rows_at_once_ = source->begin(&window_);
  lay_out();

  int y = region.y;
  for (int top = window_.top; top < window_.bottom; top += rows_at_once_) {
    const int bottom = std::min(top + rows_at_once_, window_.bottom);
    if (!source->read(window_, top, bottom, &coefficients_) || !transform(bottom - top)) return false;
    mend_edges(top, bottom);
    // The last row of a strip is upsampled with the first of the next.
    const int held_back = high_ == 2 && bottom < window_.bottom ? 1 : 0;
    const int end = std::min(bottom * window_.mcu.height - held_back, region.y + region.height);
    y = give_rows(y, end, top, sink);
    keep_last_rows(bottom - top);
  }
  return true;
}

StripWindow StripDecoder::window_of(const StripPicture& picture, int denominator, Rect region) {
  picture_ = &picture;
  region_ = region;
  scale(denominator);
  plan_window();
  return window_;
}

// Reduced, a block of brightness becomes smaller; one of colour too, unless it can have its full size and save the
// upsampling: libjpeg doubles it as long as it fits in both directions.
void StripDecoder::scale(int denominator) {
  const int light = kBlockSide / denominator;
  int colour = light;
  while (colour < kBlockSide && picture_->across * light % (2 * colour) == 0 &&
         picture_->down * light % (2 * colour) == 0) {
    colour *= 2;
  }
  planes_[0].block = light;
  planes_[1].block = planes_[2].block = colour;
  wide_ = picture_->across * light / colour;
  high_ = picture_->down * light / colour;
}

bool StripDecoder::can_upsample() const {
  if (picture_->components == 1 || wide_ * high_ == 1) return true;
  // Where there is but one pixel a block, or at most two samples in a row, libjpeg repeats samples; that is too rare.
  constexpr int kMostRepeated = 2;
  return planes_[0].block > 1 && (wide_ == 1 || colour_size().width > kMostRepeated);
}

// Of the planes of colour, in samples.
Size StripDecoder::colour_size() const {
  const int block = planes_[1].block;
  return {ceil_div(picture_->size.width * block, picture_->across * kBlockSide),
          ceil_div(picture_->size.height * block, picture_->down * kBlockSide)};
}

void StripDecoder::plan_window() {
  StripWindow& window = window_;
  const int light = planes_[0].block;
  window.mcu = {light * picture_->across, light * picture_->down};
  window.per_row = picture_->mcus_per_row();
  const int beside = wide_ == 2 ? 2 : 0, above = high_ == 2 ? 2 : 0;  // Note [upsampling margin]
  window.left = std::max(region_.x - beside, 0) / window.mcu.width;
  window.top = std::max(region_.y - above, 0) / window.mcu.height;
  window.right = std::min(ceil_div(region_.x + region_.width + beside, window.mcu.width), window.per_row);
  window.bottom = std::min(ceil_div(region_.y + region_.height + above, window.mcu.height), picture_->mcu_rows());
}

void StripDecoder::lay_out() {
  const int mcus = window_.right - window_.left;
  std::size_t coefficients = 0, samples = 0;
  std::array<std::size_t, kMostComponents> coefficients_at = {}, samples_at = {};
  for (std::size_t c = 0; c < static_cast<std::size_t>(picture_->components); ++c) {
    const int across = c == 0 ? picture_->across : 1, down = c == 0 ? picture_->down : 1;
    Plane& plane = planes_[c];
    plane.blocks = mcus * across;
    plane.rows = rows_at_once_ * down * plane.block;
    coefficients_[c].pairs = (plane.blocks + 1) / 2;
    coefficients_at[c] = coefficients;
    coefficients +=
        static_cast<std::size_t>(coefficients_[c].pairs) * (plane.rows / plane.block) * CoefficientRows::kPairStride;
    plane.stride = static_cast<std::ptrdiff_t>(coefficients_[c].pairs) * 2 * plane.block + 2 * kSlack;
    samples_at[c] = samples + static_cast<std::size_t>(plane.stride + kSlack);
    samples += static_cast<std::size_t>(plane.stride) * (plane.rows + 2);
  }
  std::int16_t* const first_coefficient = aligned(&coefficient_memory_, coefficients);
  std::uint8_t* const first_sample = aligned(&plane_memory_, samples);
  for (std::size_t c = 0; c < static_cast<std::size_t>(picture_->components); ++c) {
    coefficients_[c].first = first_coefficient + coefficients_at[c];
    planes_[c].first = first_sample + samples_at[c];
  }
  row_stride_ = static_cast<std::ptrdiff_t>(region_.width) * kBytesPerPixel + kSlack;
  at_least(&rows_, static_cast<std::size_t>(row_stride_ * kRowsPerCall + kSlack));
}

bool StripDecoder::transform(int rows) {
  bool good = true;
  for (std::size_t c = 0; c < static_cast<std::size_t>(picture_->components); ++c) {
    const Plane& plane = planes_[c];
    const IdctPair pair = idct_->pair(plane.block);
    const IdctQuad quad = plane.block == kBlockSide ? idct_->quad : nullptr;
    const int block_rows = rows * (c == 0 ? picture_->down : 1);
    for (int row = 0; row < block_rows; ++row) {
      int column = 0;
      for (; quad != nullptr && column + 2 < plane.blocks; column += 4) {
        good &= quad(coefficients_[c].block(row, column), coefficients_[c].block(row, column + 2), picture_->quant[c],
                     plane.row(row * plane.block) + column * plane.block, plane.stride);
      }
      for (; column < plane.blocks; column += 2) {
        good &= pair(coefficients_[c].block(row, column), picture_->quant[c],
                     plane.row(row * plane.block) + column * plane.block, plane.stride);
      }
    }
  }
  return good;
}

// The picture's edge repeats itself: beyond it lies padding of whole blocks, which upsampling must not see.
void StripDecoder::mend_edges(int top, int bottom) {
  if (picture_->components == 1) return;
  for (std::size_t c = 1; c < kMostComponents; ++c) {
    const Plane& plane = planes_[c];
    const int rows = (bottom - top) * plane.block;
    if (wide_ == 2) {
      const int real = colour_size().width - window_.left * plane.block;
      for (int y = 0; y < rows; ++y) {
        std::uint8_t* const row = plane.row(y);
        if (window_.left == 0) row[-1] = row[0];
        if (real <= plane.blocks * plane.block) row[real] = row[real - 1];
      }
    }
    if (high_ == 2) {
      const int real = colour_size().height - top * plane.block;
      if (top == 0) copy_row(plane, 0, -1);
      if (real <= rows) copy_row(plane, real - 1, real);
    }
  }
}

void StripDecoder::keep_last_rows(int rows) {
  if (high_ != 2) return;
  copy_row(planes_[0], rows * picture_->down * planes_[0].block - 1, -1);
  copy_row(planes_[1], rows * planes_[1].block - 1, -1);
  copy_row(planes_[2], rows * planes_[2].block - 1, -1);
}

void StripDecoder::copy_row(const Plane& plane, int from, int to) {
  std::memcpy(plane.row(to) - 1, plane.row(from) - 1, static_cast<std::size_t>(plane.blocks) * plane.block + 2);
}

int StripDecoder::give_rows(int y, int end, int strip_top, RowSink sink) {
  while (y < end) {
    const int count = std::min(kRowsPerCall, end - y);
    for (int i = 0; i < count; ++i) convert_row(y + i, strip_top, rows_.data() + i * row_stride_);
    sink.take(sink.context, y - region_.y, count, rows_.data(), row_stride_);
    y += count;
  }
  return y;
}

void StripDecoder::convert_row(int y, int strip_top, std::uint8_t* out) {
  const int x = region_.x - window_.left * window_.mcu.width;
  const std::uint8_t* const light = planes_[0].row(y - strip_top * window_.mcu.height) + x;
  if (picture_->components == 1) return color_->gray_to_rgbx(light, out, region_.width);
  const std::uint8_t* const cb = color_row(planes_[1], y, strip_top, &cb_) + x;
  const std::uint8_t* const cr = color_row(planes_[2], y, strip_top, &cr_) + x;
  color_->ycc_to_rgbx(light, cb, cr, out, region_.width);
}

// A row of a colour at full size.
const std::uint8_t* StripDecoder::color_row(const Plane& plane, int y, int strip_top,
                                            std::vector<std::uint8_t>* memory) {
  const int columns = plane.blocks * plane.block;
  const int row = y / high_ - strip_top * plane.block;
  if (wide_ == 1 && high_ == 1) return plane.row(row);
  std::uint8_t* const out = at_least(memory, static_cast<std::size_t>(columns * wide_ + kSlack));
  if (high_ == 1) {
    color_->twice_as_wide(plane.row(row), out, columns);
    return out;
  }
  const bool upper = y % 2 == 0;
  const std::uint8_t* const near = plane.row(row);
  const std::uint8_t* const far = plane.row(upper ? row - 1 : row + 1);
  if (wide_ == 1) {
    color_->twice_as_high(near, far, upper ? 1 : 2, out, columns);
  } else {
    std::uint16_t* const sums = at_least(&sums_, static_cast<std::size_t>(columns + kSlack));
    color_->three_to_one(near - 1, far - 1, sums, columns + 2);
    color_->twice_as_wide_sums(sums + 1, out, columns);
  }
  return out;
}

}  // namespace fastpipe
