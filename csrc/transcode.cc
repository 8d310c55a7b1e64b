#include "transcode.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "jpeg_errors.h"
#include "tiling.h"

namespace fastpipe {
namespace {

constexpr int kRequantiseQuality = 95;

// Note [12-bit JPEG]
// An 8-bit libjpeg refuses 12-bit files at the precision byte of the frame header, though it can read their
// coefficients: the entropy coding is the same (ITU-T T.81, F.1.2 and F.2.2), only the values are larger. So that byte
// is patched in a copy, and the coefficients are brought to 8 bits by requantising: a 12-bit sample is 16 times an
// 8-bit one, the level shift too (2048 = 16 * 128), and the DCT is linear.
constexpr int kTwelveBits = 12;
constexpr int kTwelveBitScale = 16;

// The position of the precision byte of the first frame header, or 0 where there is none.
std::size_t find_precision(const std::uint8_t* data, std::size_t size) {
  std::size_t at = 2;
  while (at + 4 < size) {
    if (data[at] != 0xFF) return 0;
    const int marker = data[at + 1];
    if (marker == 0xFF) {  // fill byte
      ++at;
      continue;
    }
    const bool frame = marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
    if (frame) return at + 4;
    if (marker == 0xDA || marker == 0xD9) return 0;
    at += 2 + static_cast<std::size_t>(data[at + 2] << 8 | data[at + 3]);
  }
  return 0;
}

std::int64_t round_divide(std::int64_t value, std::int64_t by) {
  return value >= 0 ? (value + by / 2) / by : -((-value + by / 2) / by);
}

}  // namespace

struct Transcoder::State {
  jpeg_decompress_struct in;
  jpeg_compress_struct out;
  JpegErrors errors;
  jpeg_progress_mgr progress;
  int max_scans = 0;
  unsigned components_seen = 0;
  unsigned char* output = nullptr;
  unsigned long output_size = 0;

  State() {
    in.err = &errors.base;
    out.err = &errors.base;
    errors.allow_stray_bytes = true;
    if (setjmp(errors.jump)) throw std::bad_alloc();  // Note [libjpeg errors]
    jpeg_create_decompress(&in);
    jpeg_create_compress(&out);
    in.client_data = this;
    in.progress = &progress;
    progress.progress_monitor = on_progress;
  }
  ~State() {
    jpeg_destroy_decompress(&in);
    jpeg_destroy_compress(&out);
    std::free(output);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Called by libjpeg before each step of reading.
  static void on_progress(j_common_ptr cinfo) {
    auto* self = static_cast<State*>(cinfo->client_data);
    if (self->in.input_scan_number > self->max_scans) {
      fail(cinfo, error(Code::too_many_scans, "over %d", self->max_scans));
    }
    for (int i = 0; i < self->in.comps_in_scan; ++i) {
      self->components_seen |= 1u << self->in.cur_comp_info[i]->component_index;
    }
  }

  void require_every_scan() {
    const auto common = reinterpret_cast<j_common_ptr>(&in);
    for (int c = 0; c < in.num_components; ++c) {
      if ((components_seen >> c & 1) == 0) fail(common, error(Code::truncated, "no scan of component %d", c + 1));
      for (int k = 0; in.progressive_mode && k < DCTSIZE2; ++k) {
        if (in.coef_bits[c][k] != 0) {
          fail(common,
               error(Code::truncated, "progressive scans are missing: coefficient %d of component %d", k, c + 1));
        }
      }
    }
  }

  // A scan of one component has MCUs of one block, whatever its sampling factors.
  int interval(std::size_t source_bytes, int tile_width) const {
    const bool alone = in.num_components == 1;
    const int mcu_width = DCTSIZE * (alone ? 1 : in.max_h_samp_factor);
    const int mcu_height = DCTSIZE * (alone ? 1 : in.max_v_samp_factor);
    return restart_interval({ceil_div(static_cast<int>(in.image_width), mcu_width),
                             ceil_div(static_cast<int>(in.image_height), mcu_height), mcu_width, tile_width,
                             source_bytes});
  }

  // Note [12-bit JPEG]
  void requantise(jvirt_barray_ptr* coefficients) {
    jpeg_set_quality(&out, kRequantiseQuality, TRUE);
    for (int c = 0; c < in.num_components; ++c) {
      jpeg_component_info& from = in.comp_info[c];
      jpeg_component_info& to = out.comp_info[c];
      to.quant_tbl_no = c == 0 ? 0 : 1;
      const UINT16* old_step = from.quant_table->quantval;
      const UINT16* new_step = out.quant_tbl_ptrs[to.quant_tbl_no]->quantval;
      for (JDIMENSION y = 0; y < from.height_in_blocks; ++y) {
        JBLOCKROW row =
            (*in.mem->access_virt_barray)(reinterpret_cast<j_common_ptr>(&in), coefficients[c], y, 1, TRUE)[0];
        for (JDIMENSION x = 0; x < from.width_in_blocks; ++x) {
          for (int k = 0; k < DCTSIZE2; ++k) {
            const std::int64_t value = std::int64_t{row[x][k]} * old_step[k];
            const std::int64_t rounded = round_divide(value, std::int64_t{new_step[k]} * kTwelveBitScale);
            constexpr std::int64_t kMost = 1023;  // what 8-bit entropy coding holds
            row[x][k] = static_cast<JCOEF>(std::clamp(rounded, -kMost, kMost));
          }
        }
      }
    }
  }

  Status convert(const std::uint8_t* data, std::size_t size, const std::vector<Segment>& segments,
                 const TranscodeOptions& options, JpegInfo* info) {
    if (setjmp(errors.jump)) {  // Note [libjpeg errors]
      // A memory destination that has grown has freed the buffer that `output` still names; ending it names the new
      // one.
      if (output != nullptr) (*out.dest->term_destination)(&out);
      jpeg_abort_decompress(&in);
      jpeg_abort_compress(&out);
      return errors.status;
    }
    const auto common = reinterpret_cast<j_common_ptr>(&in);
    jpeg_mem_src(&in, data, static_cast<unsigned long>(size));
    errors.in_header = true;
    jpeg_read_header(&in, TRUE);
    errors.in_header = false;
    info->width = static_cast<int>(in.image_width);
    info->height = static_cast<int>(in.image_height);
    info->components = in.num_components;
    info->progressive = in.progressive_mode;
    info->arithmetic = in.arith_code;
    if (static_cast<std::int64_t>(in.image_width) * in.image_height > options.max_pixels) {
      fail(common, error(Code::too_large, "%u x %u is over %lld pixels", in.image_width, in.image_height,
                         static_cast<long long>(options.max_pixels)));
    }
    if (in.num_components != 1 && in.num_components != 3 && in.num_components != 4) {
      fail(common, error(Code::unsupported, "%d colour components", in.num_components));
    }

    jvirt_barray_ptr* coefficients = jpeg_read_coefficients(&in);
    require_every_scan();
    info->stray_bytes = errors.found_stray_bytes;
    if (!options.check_only && in.num_components != 4) {
      jpeg_mem_dest(&out, &output, &output_size);
      jpeg_copy_critical_parameters(&in, &out);
      if (info->precision == kTwelveBits) requantise(coefficients);
      info->exact = info->precision != kTwelveBits;
      out.optimize_coding = TRUE;
      out.restart_interval = static_cast<unsigned>(interval(size, options.tile_width));
      jpeg_write_coefficients(&out, coefficients);
      for (std::size_t i = 0; i < segments.size(); ++i) {
        const Segment& segment = segments[i];
        jpeg_write_marker(&out, segment.marker, segment.data, static_cast<unsigned>(segment.size));
      }
      jpeg_finish_compress(&out);
    }
    jpeg_abort_decompress(&in);
    return {};
  }
};

Transcoder::Transcoder() : state_(std::make_unique<State>()) {}
Transcoder::~Transcoder() = default;

Status Transcoder::run(const std::uint8_t* data, std::size_t size, const std::vector<Segment>& segments,
                       const TranscodeOptions& options, JpegInfo* info) {
  State& state = *state_;
  *info = {};
  state.errors.reset();
  state.max_scans = options.max_scans;
  state.components_seen = 0;
  std::free(state.output);
  state.output = nullptr;
  state.output_size = 0;

  const std::size_t precision_at = find_precision(data, size);
  const int precision = precision_at != 0 ? data[precision_at] : 8;
  if (precision == kTwelveBits) {
    patched_.assign(data, data + size);
    patched_[precision_at] = 8;
  }
  info->precision = precision;
  Status status = state.convert(precision == kTwelveBits ? patched_.data() : data, size, segments, options, info);
  if (!status.ok() || state.output == nullptr) return status;
  // libjpeg can carry coefficients over for chroma layouts that it cannot decode; it says so when a decode begins.
  status = decoder_.open(state.output, state.output_size, options.max_pixels);
  if (!status.ok()) return status;
  return decoder_.decode(1, {0, 0, 1, 1}, {nullptr, [](void*, int, int, const std::uint8_t*, std::ptrdiff_t) {}});
}

const std::uint8_t* Transcoder::output() const { return state_->output; }
std::size_t Transcoder::output_size() const { return state_->output_size; }

}  // namespace fastpipe
