#include "jpeg/decode/turbo.h"

#include <algorithm>

#include "jpeg/decode/splice.h"
#include "jpeg/jpeg_errors.h"

namespace fastpipe {
namespace {

constexpr int kRowsPerCall = 8;

// Note [row alignment]
// Where a row of output begins at a multiple of 16 bytes (SSE2) or 32 (AVX2), libjpeg-turbo writes it past the caches,
// with non-temporal stores; the resizer, which reads it at once, then waits for memory and takes twice as long. So rows
// begin 4 bytes beside such a multiple.
constexpr std::size_t kAlignment = 32;
constexpr std::size_t kBesideAlignment = 4;

// Note [columns of doubled colour]
// Reduced, libjpeg may give colour blocks of twice the size and save upsampling by as much; where some upsampling is
// left even so (4x2 and 2x4 blocks of brightness an MCU), libjpeg-turbo's jpeg_crop_scanline (2.1.5) takes the wrong
// columns of colour. Then all columns are decoded.

}  // namespace

struct TurboDecoder::State {
  jpeg_decompress_struct cinfo;
  JpegErrors errors;

  State() {
    cinfo.err = &errors.base;
    if (setjmp(errors.jump)) throw_creation_error(errors.status);  // Note [libjpeg errors]
    jpeg_create_decompress(&cinfo);
  }
  ~State() { jpeg_destroy_decompress(&cinfo); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Of the minimum coded unit, in pixels. A scan of one component has MCUs of one block, whatever its sampling factors.
  Size mcu_size() const {
    if (cinfo.num_components == 1) return {DCTSIZE, DCTSIZE};
    return {DCTSIZE * cinfo.max_h_samp_factor, DCTSIZE * cinfo.max_v_samp_factor};
  }

  // Note [columns of doubled colour]
  bool can_crop_columns(int denominator) const {
    const int light = DCTSIZE / denominator;  // the side of a block of brightness, in pixels
    const int across = cinfo.max_h_samp_factor * light, down = cinfo.max_v_samp_factor * light;  // of an MCU
    for (int c = 0; c < cinfo.num_components; ++c) {
      const jpeg_component_info& component = cinfo.comp_info[c];
      int block = light;
      while (block < DCTSIZE && across % (component.h_samp_factor * block * 2) == 0 &&
             down % (component.v_samp_factor * block * 2) == 0) {
        block *= 2;
      }
      const bool whole = component.h_samp_factor * block == across && component.v_samp_factor * block == down;
      if (block != light && !whole) return false;
    }
    return true;
  }
};

TurboDecoder::TurboDecoder() : state_(std::make_unique<State>()) {}
TurboDecoder::~TurboDecoder() = default;
TurboDecoder::TurboDecoder(TurboDecoder&&) noexcept = default;

Status TurboDecoder::open(const std::uint8_t* data, std::size_t size, std::int64_t max_pixels) {
  data_ = data;
  size_ = size;
  return read_header(data, size, max_pixels);
}

Status TurboDecoder::read_header(const std::uint8_t* data, std::size_t size, std::int64_t max_pixels) {
  State& state = *state_;
  jpeg_decompress_struct& cinfo = state.cinfo;
  state.errors.reset();
  if (setjmp(state.errors.jump)) {  // Note [libjpeg errors]
    jpeg_abort_decompress(&cinfo);
    return state.errors.status;
  }
  // Made anew for each picture: libjpeg keeps tables, and would give those of the last one to a picture without any.
  jpeg_destroy_decompress(&cinfo);
  jpeg_create_decompress(&cinfo);
  jpeg_mem_src(&cinfo, data, static_cast<unsigned long>(size));
  jpeg_read_header(&cinfo, TRUE);
  const auto common = reinterpret_cast<j_common_ptr>(&cinfo);
  if (static_cast<std::int64_t>(cinfo.image_width) * cinfo.image_height > max_pixels) {
    fail(common, error(Code::too_large, "%u x %u is over %lld pixels", cinfo.image_width, cinfo.image_height,
                       static_cast<long long>(max_pixels)));
  }
  if (cinfo.progressive_mode || cinfo.arith_code || jpeg_has_multiple_scans(&cinfo)) {
    fail(common, error(Code::unsupported, "%s; shards hold baseline JPEG of one scan, which fastpipe pack makes",
                       cinfo.progressive_mode ? "progressive"
                       : cinfo.arith_code     ? "arithmetic-coded"
                                              : "several scans"));
  }
  if (cinfo.num_components != 1 && cinfo.num_components != 3) {
    fail(common, error(Code::unsupported, "%d colour components; expected 1 or 3", cinfo.num_components));
  }
  return {};
}

Size TurboDecoder::size() const {
  return {static_cast<int>(state_->cinfo.image_width), static_cast<int>(state_->cinfo.image_height)};
}

Status TurboDecoder::decode(int denominator, Rect region, RowSink sink) {
  Status status = cut_out(denominator, &region);
  if (status.ok()) status = decode_rows(denominator, region, sink);
  give_back_if_giant(&part_);
  return status;
}

// Note [cutting out]
// Where restart markers make a grid of tiles, the tiles that a region touches (and the pixels around it that
// upsampling looks at) are a smaller JPEG with the same tables: libjpeg-turbo never sees the bits of the others. What
// it decodes of the region is the same bit by bit. Where the markers make no grid, the picture is left whole. Where
// they do not fit at all, it is also read to its end: intervals may be missing whose neighbours' numbers fit, and then
// the rows are not what they seem, which only the end shows.
Status TurboDecoder::cut_out(int denominator, Rect* region) {
  const jpeg_decompress_struct& cinfo = state_->cinfo;
  const Size image = size();
  const Size mcu = state_->mcu_size();
  const int mcus_per_row = ceil_div(image.width, mcu.width);
  const int rows = ceil_div(image.height, mcu.height);
  const int interval = static_cast<int>(cinfo.restart_interval);
  read_to_end_ = false;
  if (interval == 0) return {};
  const auto header_bytes = static_cast<std::size_t>(cinfo.src->next_input_byte - data_);
  const auto intervals = static_cast<std::size_t>(ceil_div(mcus_per_row * rows, interval));
  read_to_end_ = !map_.find(data_ + header_bytes, size_ - header_bytes, intervals);
  if (read_to_end_ || mcus_per_row % interval != 0) return {};

  const Size tile = {interval * mcu.width, mcu.height};
  const Size grid = {mcus_per_row / interval, rows};
  const TileRange range = tiles_needed(image, tile, grid, denominator, *region);
  if (range.columns == grid.width && range.rows == grid.height) return {};
  const Size part = size_of(range, image, tile);
  if (!splice(data_, header_bytes, map_, range, part, &part_)) return {};
  region->x -= range.column * tile.width / denominator;
  region->y -= range.row * tile.height / denominator;
  return read_header(part_.data(), part_.size(), kMostPixelsOfPart);
}

Status TurboDecoder::decode_rows(int denominator, Rect region, RowSink sink) {
  State& state = *state_;
  jpeg_decompress_struct& cinfo = state.cinfo;
  const Size whole = scaled_down(size(), denominator);
  const std::size_t row_bytes =
      static_cast<std::size_t>(whole.width) * static_cast<std::size_t>(sink.form.bytes_decoded()) +
      RowSink::kReadBeyond;
  const std::ptrdiff_t stride = static_cast<std::ptrdiff_t>((row_bytes + kAlignment - 1) / kAlignment * kAlignment);
  rows_.resize(static_cast<std::size_t>(stride) * kRowsPerCall + 2 * kAlignment);
  const auto address = reinterpret_cast<std::uintptr_t>(rows_.data());
  std::uint8_t* const first_row = rows_.data() + (kAlignment - address % kAlignment) + kBesideAlignment;
  JSAMPROW rows[kRowsPerCall];
  for (int i = 0; i < kRowsPerCall; ++i) rows[i] = first_row + i * stride;

  if (setjmp(state.errors.jump)) {  // Note [libjpeg errors]
    jpeg_abort_decompress(&cinfo);
    return state.errors.status;
  }
  cinfo.scale_num = 1;
  cinfo.scale_denom = static_cast<unsigned>(denominator);
  cinfo.out_color_space = sink.form.channels == 1 ? JCS_GRAYSCALE : JCS_EXT_RGBX;
  cinfo.dct_method = JDCT_ISLOW;
  cinfo.do_fancy_upsampling = TRUE;
  jpeg_start_decompress(&cinfo);

  const int left = std::max(region.x - kUpsamplingMargin, 0);
  const int right = std::min(region.x + region.width + kUpsamplingMargin, whole.width);
  JDIMENSION first_column = static_cast<JDIMENSION>(left);
  JDIMENSION columns = static_cast<JDIMENSION>(right - left);
  if (!state.can_crop_columns(denominator)) {
    first_column = 0;
  } else if (right - left < whole.width) {
    jpeg_crop_scanline(&cinfo, &first_column, &columns);  // widens to whole blocks
  }
  const std::ptrdiff_t skip_bytes = (region.x - static_cast<int>(first_column)) * sink.form.bytes_decoded();
  if (region.y > 0) jpeg_skip_scanlines(&cinfo, static_cast<JDIMENSION>(region.y));
  for (int y = 0; y < region.height;) {
    const int wanted = std::min(kRowsPerCall, region.height - y);
    int got = 0;  // libjpeg-turbo mostly gives one row a call, whatever it is asked for
    while (got < wanted) {
      got += static_cast<int>(jpeg_read_scanlines(&cinfo, rows + got, static_cast<JDIMENSION>(wanted - got)));
    }
    sink.take(sink.context, y, got, first_row + skip_bytes, stride);
    y += got;
  }
  if (read_to_end_ && cinfo.output_scanline < cinfo.output_height) {
    // Skipping the last row, too, would skip reading.
    const JDIMENSION last = cinfo.output_height - 1;
    if (cinfo.output_scanline < last) jpeg_skip_scanlines(&cinfo, last - cinfo.output_scanline);
    jpeg_read_scanlines(&cinfo, rows, 1);
  }
  jpeg_abort_decompress(&cinfo);
  return {};
}

}  // namespace fastpipe
