#include "jpeg.h"

#include <algorithm>
#include <new>

#include "jpeg_errors.h"
#include "splice.h"

namespace fastpipe {
namespace {

constexpr int kBytesPerPixel = 4;
constexpr int kRowsPerCall = 8;
constexpr std::size_t kRowPadding = 16;  // RowSink's promise

// Note [upsampling margin]
// Fancy upsampling makes each pixel from two neighbouring chroma samples in each direction, and treats the edge of
// what it is given as the edge of the picture. A crop with one chroma sample to spare on each side (two pixels) has the
// right neighbours; libjpeg widens it further, to whole blocks.
// Pictures of at most two chroma samples across get no fancy upsampling, so a part may not be that narrow.
constexpr int kMargin = 2;
constexpr int kFancyWidth = 5;

// Note [row alignment]
// Where a row of output begins at a multiple of 16 bytes (SSE2) or 32 (AVX2), libjpeg-turbo writes it past the caches,
// with non-temporal stores; the resizer, which reads it at once, then waits for memory and takes twice as long. So rows
// begin 4 bytes beside such a multiple.
constexpr std::size_t kAlignment = 32;
constexpr std::size_t kBesideAlignment = 4;

constexpr std::int64_t kMaxPartPixels = INT64_MAX;  // the whole picture has been let in

}  // namespace

struct JpegDecoder::State {
  jpeg_decompress_struct cinfo;
  JpegErrors errors;

  State() {
    cinfo.err = &errors.base;
    if (setjmp(errors.jump)) throw std::bad_alloc();  // Note [libjpeg errors]
    jpeg_create_decompress(&cinfo);
  }
  ~State() { jpeg_destroy_decompress(&cinfo); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // What StripDecoder needs to know; false where the picture is not of its kinds.
  bool describe(ScanHeader* header) const {
    const int components = cinfo.num_components;
    const bool gray = components == 1 && cinfo.jpeg_color_space == JCS_GRAYSCALE;
    const bool colour = components == 3 && cinfo.jpeg_color_space == JCS_YCbCr;
    const bool one_pass = cinfo.Ss == 0 && cinfo.Se == DCTSIZE2 - 1 && cinfo.Ah == 0 && cinfo.Al == 0;
    if (!(gray || colour) || !one_pass || cinfo.comps_in_scan != components) return false;
    header->size = {static_cast<int>(cinfo.image_width), static_cast<int>(cinfo.image_height)};
    header->components = components;
    header->interval = static_cast<int>(cinfo.restart_interval);
    for (int c = 0; c < components; ++c) {
      const jpeg_component_info& component = cinfo.comp_info[c];
      if (cinfo.cur_comp_info[c] != &component) return false;
      if (component.quant_tbl_no < 0 || component.quant_tbl_no >= NUM_QUANT_TBLS) return false;
      const JQUANT_TBL* const quant = cinfo.quant_tbl_ptrs[component.quant_tbl_no];
      if (quant == nullptr) return false;
      header->quant[c] = quant->quantval;
      header->tables.dc_of[c] = static_cast<std::size_t>(component.dc_tbl_no);
      header->tables.ac_of[c] = static_cast<std::size_t>(component.ac_tbl_no);
      const bool chroma = c > 0;
      if (chroma && (component.h_samp_factor != 1 || component.v_samp_factor != 1)) return false;
    }
    for (int i = 0; i < ScanTables::kMost && i < NUM_HUFF_TBLS; ++i) {
      const JHUFF_TBL *const dc = cinfo.dc_huff_tbl_ptrs[i], *const ac = cinfo.ac_huff_tbl_ptrs[i];
      if (dc != nullptr) header->tables.dc[i] = {dc->bits, dc->huffval};
      if (ac != nullptr) header->tables.ac[i] = {ac->bits, ac->huffval};
    }
    if (gray) return true;
    header->across = cinfo.comp_info[0].h_samp_factor;
    header->down = cinfo.comp_info[0].v_samp_factor;
    const bool fancy = header->across == 1 || header->size.width >= kFancyWidth;
    return header->across <= 2 && header->down <= 2 && fancy;
  }

  // Of the minimum coded unit, in pixels. A scan of one component has MCUs of one block, whatever its sampling factors.
  Size mcu_size() const {
    if (cinfo.num_components == 1) return {DCTSIZE, DCTSIZE};
    return {DCTSIZE * cinfo.max_h_samp_factor, DCTSIZE * cinfo.max_v_samp_factor};
  }
};

JpegDecoder::JpegDecoder() : state_(std::make_unique<State>()) {}
JpegDecoder::~JpegDecoder() = default;
JpegDecoder::JpegDecoder(JpegDecoder&&) noexcept = default;

Status JpegDecoder::open(const std::uint8_t* data, std::size_t size, std::int64_t max_pixels) {
  data_ = data;
  size_ = size;
  return read_header(data, size, max_pixels);
}

Status JpegDecoder::read_header(const std::uint8_t* data, std::size_t size, std::int64_t max_pixels) {
  State& state = *state_;
  jpeg_decompress_struct& cinfo = state.cinfo;
  state.errors.reset();
  if (setjmp(state.errors.jump)) {  // Note [libjpeg errors]
    jpeg_abort_decompress(&cinfo);
    return state.errors.status;
  }
  jpeg_abort_decompress(&cinfo);
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

Size JpegDecoder::size() const {
  return {static_cast<int>(state_->cinfo.image_width), static_cast<int>(state_->cinfo.image_height)};
}

Size JpegDecoder::scaled_size(int denominator) const {
  return {ceil_div(size().width, denominator), ceil_div(size().height, denominator)};
}

Status JpegDecoder::decode(int denominator, Rect region, RowSink sink, DecodeMethod method) {
  const Size whole = scaled_size(denominator);
  if (!region.inside(whole)) {
    return error(Code::bad_crop, "columns %d + %d, rows %d + %d of %d x %d", region.x, region.width, region.y,
                 region.height, whole.width, whole.height);
  }
  if (method != DecodeMethod::libjpeg && denominator == 1 && decode_strips(region, sink)) return {};
  if (method == DecodeMethod::strips) return error(Code::unsupported, "given up strip by strip");
  const Status status = cut_out(denominator, &region);
  return status.ok() ? decode_rows(denominator, region, sink) : status;
}

// False where libjpeg-turbo has to do it.
bool JpegDecoder::decode_strips(Rect region, RowSink sink) {
  const jpeg_decompress_struct& cinfo = state_->cinfo;
  ScanHeader header;
  if (!StripDecoder::available() || !state_->describe(&header)) return false;
  const Size image = size();
  const Size mcu = state_->mcu_size();
  const int mcus_per_row = ceil_div(image.width, mcu.width);
  const int mcus = mcus_per_row * ceil_div(image.height, mcu.height);
  if (header.interval >= mcus) header.interval = 0;
  if (header.interval != 0 && mcus_per_row % header.interval != 0) return false;
  const int intervals = header.interval == 0 ? 1 : mcus / header.interval;
  const std::uint8_t* const scan = cinfo.src->next_input_byte;
  const std::uint8_t* const end = data_ + size_;
  return map_.scan(scan, static_cast<std::size_t>(end - scan), static_cast<std::size_t>(intervals)) &&
         strips_.decode(header, map_, end, region, sink);
}

// Note [cutting out]
// Where restart markers make a grid of tiles, the tiles that a region touches (and the pixels around it that
// upsampling looks at) are a smaller JPEG with the same tables: libjpeg-turbo never sees the bits of the others. What
// it decodes of the region is the same bit by bit. Restart markers that make no grid, or not the right one, leave the
// picture whole: libjpeg-turbo reads all of it and says what is wrong.
Status JpegDecoder::cut_out(int denominator, Rect* region) {
  const jpeg_decompress_struct& cinfo = state_->cinfo;
  const Size image = size();
  const Size mcu = state_->mcu_size();
  const int mcus_per_row = ceil_div(image.width, mcu.width);
  const int rows = ceil_div(image.height, mcu.height);
  const int interval = static_cast<int>(cinfo.restart_interval);
  if (interval == 0 || mcus_per_row % interval != 0) return {};

  const Size tile = {interval * mcu.width, mcu.height};
  const int columns = mcus_per_row / interval;
  int left = std::max(region->x - kMargin, 0) * denominator / tile.width;
  const int top = std::max(region->y - kMargin, 0) * denominator / tile.height;
  int right = std::min(ceil_div((region->x + region->width + kMargin) * denominator, tile.width), columns);
  const int bottom = std::min(ceil_div((region->y + region->height + kMargin) * denominator, tile.height), rows);
  const auto width = [&] { return std::min(right * tile.width, image.width) - left * tile.width; };
  while (width() < kFancyWidth * denominator && right - left < columns) left > 0 ? --left : ++right;
  if (right - left == columns && bottom - top == rows) return {};

  const auto header_bytes = static_cast<std::size_t>(cinfo.src->next_input_byte - data_);
  if (!map_.scan(data_ + header_bytes, size_ - header_bytes, static_cast<std::size_t>(columns) * rows)) return {};
  const Size part = {width(), std::min(bottom * tile.height, image.height) - top * tile.height};
  const TileRange range = {columns, left, right - left, top, bottom - top};
  if (!splice(data_, header_bytes, map_, range, part, &part_)) return {};
  region->x -= left * tile.width / denominator;
  region->y -= top * tile.height / denominator;
  return read_header(part_.data(), part_.size(), kMaxPartPixels);
}

Status JpegDecoder::decode_rows(int denominator, Rect region, RowSink sink) {
  State& state = *state_;
  jpeg_decompress_struct& cinfo = state.cinfo;
  const Size whole = scaled_size(denominator);
  const std::size_t row_bytes = static_cast<std::size_t>(whole.width) * kBytesPerPixel + kRowPadding;
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
  cinfo.out_color_space = JCS_EXT_RGBX;
  cinfo.dct_method = JDCT_ISLOW;
  cinfo.do_fancy_upsampling = TRUE;
  jpeg_start_decompress(&cinfo);

  const int left = std::max(region.x - kMargin, 0);
  const int right = std::min(region.x + region.width + kMargin, whole.width);
  JDIMENSION first_column = static_cast<JDIMENSION>(left);
  JDIMENSION columns = static_cast<JDIMENSION>(right - left);
  if (right - left < whole.width) jpeg_crop_scanline(&cinfo, &first_column, &columns);  // widens to whole blocks
  const std::ptrdiff_t skip_bytes = (region.x - static_cast<int>(first_column)) * kBytesPerPixel;
  if (region.y > 0) jpeg_skip_scanlines(&cinfo, static_cast<JDIMENSION>(region.y));
  for (int y = 0; y < region.height;) {
    const int wanted = std::min(kRowsPerCall, region.height - y);
    const int got = static_cast<int>(jpeg_read_scanlines(&cinfo, rows, static_cast<JDIMENSION>(wanted)));
    sink.take(sink.context, y, got, first_row + skip_bytes, stride);
    y += got;
  }
  jpeg_abort_decompress(&cinfo);
  return {};
}

}  // namespace fastpipe
