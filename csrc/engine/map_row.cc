#include "engine/map_row.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/at_least.h"
#include "base/half.h"
#include "resize/float_loops.h"

namespace fastpipe {
namespace {

// Valid numbers with less of the weight say nothing about a number of the row.
constexpr float kLeastWeight = 0.5F;

// How numbers of each kind are read and written.
struct Float16 {
  using Stored = std::uint16_t;
  static float read(Stored stored) { return float_of_half(stored); }
  static Stored write(float value) { return half_of_float(value); }
};

struct Float32 {
  using Stored = float;
  static float read(Stored stored) { return stored; }
  static Stored write(float value) { return value; }
};

template <typename Whole>
struct WholeNumber {
  using Stored = Whole;
  static float read(Stored stored) { return stored; }
  static Stored write(float value) {
    constexpr float kMost = std::numeric_limits<Whole>::max();
    return static_cast<Whole>(std::min(std::max(__builtin_rintf(value), 0.0F), kMost));
  }
};

// Calls `work` with the kind of number.
template <typename Work>
auto with_number(MapNumber number, const Work& work) {
  switch (number) {
    case MapNumber::float16:
      return work(Float16());
    case MapNumber::uint8:
      return work(WholeNumber<std::uint8_t>());
    case MapNumber::uint16:
      return work(WholeNumber<std::uint16_t>());
    case MapNumber::float32:
      break;
  }
  return work(Float32());
}

template <typename Number>
float read_number(const std::uint8_t* bytes) {
  typename Number::Stored stored;
  std::memcpy(&stored, bytes, sizeof stored);
  return Number::read(stored);
}

template <typename Number>
void write_number(float value, std::uint8_t* bytes) {
  const typename Number::Stored stored = Number::write(value);
  std::memcpy(bytes, &stored, sizeof stored);
}

}  // namespace

bool MapRow::plan(const Box& box, const Rect& bounds, Size out, bool flip, Resampling resampling, Padding padding,
                  const MapForm& form, Rect* needed) {
  form_ = form;
  flip_ = flip;
  padding_ = padding;
  nearest_ = resampling.interpolation == Interpolation::nearest;
  const bool possible = nearest_ ? plan_nearest(box, bounds, out) : plan_weighted(box, bounds, out, resampling);
  const int first_row = nearest_ ? nearest_rows_.first_needed() : rows_.first_needed();
  const bool empty = column_count_ == 0 || row_count_ == 0;
  *needed = {first_column_, first_row, column_count_, empty ? 0 : row_count_};
  return possible;
}

bool MapRow::plan_nearest(const Box& box, const Rect& bounds, Size out) {
  bool possible = true;
  if (padding_.mode == PaddingMode::none) {
    nearest_columns_.plan(box.x, box.width, bounds.x, bounds.width, out.width, flip_, NearestRule::torch);
    nearest_rows_.plan(box.y, box.height, bounds.y, bounds.height, out.height, false, NearestRule::torch);
  } else {
    possible =
        nearest_columns_.plan_padded(box.x, box.width, bounds.x, bounds.width, out.width, flip_, padding_.mode) &&
        nearest_rows_.plan_padded(box.y, box.height, bounds.y, bounds.height, out.height, false, padding_.mode);
  }
  first_column_ = nearest_columns_.first_needed();
  column_count_ = nearest_columns_.count_needed();
  row_count_ = nearest_rows_.count_needed();
  return possible;
}

bool MapRow::plan_weighted(const Box& box, const Rect& bounds, Size out, Resampling resampling) {
  Box inside = box;
  resized_size_ = out;
  if (padding_.mode != PaddingMode::none) {
    if (!padded_columns_.plan(box.x, box.width, bounds.x, bounds.width, out.width, padding_.mode) ||
        !padded_rows_.plan(box.y, box.height, bounds.y, bounds.height, out.height, padding_.mode)) {
      return false;
    }
    resized_size_ = {padded_columns_.needed(), padded_rows_.needed()};
    inside = {padded_columns_.at(), padded_rows_.at(), padded_columns_.length(), padded_rows_.length()};
  }
  column_count_ = row_count_ = 0;
  if (resized_size_.width == 0 || resized_size_.height == 0) return true;
  columns_.plan(inside.x, inside.width, bounds.x, bounds.width, resized_size_.width, false, resampling);
  rows_.plan(inside.y, inside.height, bounds.y, bounds.height, resized_size_.height, false, resampling);
  first_column_ = columns_.first_needed();
  column_count_ = columns_.count_needed();
  row_count_ = rows_.count_needed();
  return true;
}

void MapRow::fill(const std::uint8_t* rows, int width, PixelSpan out) {
  if (nearest_) {
    fill_nearest(rows, width, out);
  } else {
    fill_weighted(rows, width, out);
  }
  if (flip_ && form_.negated != 0) negate(out);
}

void MapRow::fill_nearest(const std::uint8_t* rows, int width, PixelSpan out) const {
  const auto pixel_bytes = static_cast<std::size_t>(form_.bytes());
  std::vector<std::uint8_t> fill(pixel_bytes);
  with_number(form_.number, [&](auto number) {
    for (int c = 0; c < form_.channels; ++c) {
      write_number<decltype(number)>(form_.outside(), fill.data() + c * form_.number_bytes());
    }
  });
  for (int y = 0; y < out.size.height; ++y) {
    const int map_row = nearest_rows_.from()[static_cast<std::size_t>(y)];
    std::uint8_t* to = out.row(y);
    for (const int column : nearest_columns_.from()) {
      const std::uint8_t* from = fill.data();
      if (map_row != NearestAxis::kFill && column != NearestAxis::kFill) {
        const std::ptrdiff_t row = map_row - nearest_rows_.first_needed();
        from = rows + (row * width + column) * static_cast<std::ptrdiff_t>(pixel_bytes);
      }
      std::memcpy(to, from, pixel_bytes);
      to += pixel_bytes;
    }
  }
}

void MapRow::fill_weighted(const std::uint8_t* rows, int width, PixelSpan out) {
  values_per_pixel_ = form_.channels;
  if (column_count_ > 0 && row_count_ > 0) {
    if (!load(rows, width)) add_weights();
    resize();
  }
  spread(out);
}

// The needed part of the map as float32. False if a number of it is invalid.
bool MapRow::load(const std::uint8_t* rows, int width) {
  const int bytes = form_.number_bytes();
  const std::ptrdiff_t row_bytes = static_cast<std::ptrdiff_t>(width) * form_.bytes();
  const std::ptrdiff_t count = static_cast<std::ptrdiff_t>(column_count_) * form_.channels;
  at_least(&region_, static_cast<std::size_t>(count * row_count_));
  return with_number(form_.number, [&](auto number) {
    bool all_valid = true;
    float* to = region_.data();
    for (int y = 0; y < row_count_; ++y) {
      const std::uint8_t* from = rows + y * row_bytes + static_cast<std::ptrdiff_t>(first_column_) * form_.bytes();
      for (std::ptrdiff_t i = 0; i < count; ++i, from += bytes) {
        const float value = read_number<decltype(number)>(from);
        all_valid = all_valid && form_.is_valid(value);
        *to++ = value;
      }
    }
    return all_valid;
  });
}

// Note [invalid numbers]
void MapRow::add_weights() {
  const std::ptrdiff_t pixels = static_cast<std::ptrdiff_t>(column_count_) * row_count_;
  const int channels = form_.channels;
  at_least(&weighted_, static_cast<std::size_t>(2 * pixels * channels));
  for (std::ptrdiff_t pixel = 0; pixel < pixels; ++pixel) {
    const float* const values = region_.data() + pixel * channels;
    float* const to = weighted_.data() + 2 * pixel * channels;
    for (int c = 0; c < channels; ++c) {
      const bool valid = form_.is_valid(values[c]);
      to[c] = valid ? values[c] : 0.0F;
      to[channels + c] = valid ? 1.0F : 0.0F;
    }
  }
  region_.swap(weighted_);
  values_per_pixel_ = 2 * channels;
}

void MapRow::resize() {
  const std::ptrdiff_t in = static_cast<std::ptrdiff_t>(column_count_) * values_per_pixel_;
  const std::ptrdiff_t out = static_cast<std::ptrdiff_t>(resized_size_.width) * values_per_pixel_;
  at_least(&between_, static_cast<std::size_t>(out * row_count_));
  at_least(&resized_, static_cast<std::size_t>(out * resized_size_.height));
  const FloatLoops& loops = float_loops();
  for (int y = 0; y < row_count_; ++y) {
    loops.across(region_.data() + y * in, values_per_pixel_, columns_, resized_size_.width, between_.data() + y * out);
  }
  for (int y = 0; y < resized_size_.height; ++y) {
    const FloatTaps taps = rows_.taps(y);
    loops.down(between_.data() + taps.first * out, out, taps, static_cast<int>(out), resized_.data() + y * out);
  }
}

// Puts the resized numbers where they go, mirrored where the row is, and fills the rest.
void MapRow::spread(PixelSpan out) const {
  const int channels = form_.channels;
  const bool has_weights = values_per_pixel_ > channels;
  const bool is_padded = padding_.mode != PaddingMode::none;
  with_number(form_.number, [&](auto number) {
    using Number = decltype(number);
    for (int y = 0; y < out.size.height; ++y) {
      const int row = is_padded ? padded_rows_.from()[static_cast<std::size_t>(y)] : y;
      std::uint8_t* to = out.row(y);
      for (int x = 0; x < out.size.width; ++x) {
        const int place = flip_ ? out.size.width - 1 - x : x;
        const int column = is_padded ? padded_columns_.from()[static_cast<std::size_t>(place)] : place;
        const bool is_fill = row == PaddedAxis::kFill || column == PaddedAxis::kFill;
        const std::ptrdiff_t pixel = static_cast<std::ptrdiff_t>(row) * resized_size_.width + column;
        const float* const values = is_fill ? nullptr : resized_.data() + pixel * values_per_pixel_;
        for (int c = 0; c < channels; ++c, to += form_.number_bytes()) {
          float value = is_fill ? form_.outside() : values[c];
          if (has_weights && !is_fill) {
            const float weight = values[channels + c];
            value = weight >= kLeastWeight ? value / weight : form_.hole();
          }
          write_number<Number>(value, to);
        }
      }
    }
  });
}

// Changes the signs of directions in a mirrored row.
void MapRow::negate(PixelSpan out) const {
  with_number(form_.number, [&](auto number) {
    using Number = decltype(number);
    for (int c = 0; c < form_.channels; ++c) {
      if ((form_.negated >> c & 1U) == 0) continue;
      for (int y = 0; y < out.size.height; ++y) {
        std::uint8_t* to = out.row(y) + c * form_.number_bytes();
        for (int x = 0; x < out.size.width; ++x, to += form_.bytes()) {
          const float value = read_number<Number>(to);
          if (form_.is_valid(value)) write_number<Number>(-value, to);
        }
      }
    }
  });
}

void MapRow::give_back() {
  give_back_if_giant(&region_);
  give_back_if_giant(&weighted_);
  give_back_if_giant(&between_);
  give_back_if_giant(&resized_);
}

}  // namespace fastpipe
