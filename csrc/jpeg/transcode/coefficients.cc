#include "jpeg/transcode/coefficients.h"

#include <algorithm>
#include <vector>

#include "jpeg/jpeg_errors.h"
#include "jpeg/transcode/block_tokens.h"
#include "jpeg/transcode/scan_count.h"
#include "jpeg/transcode/tiling.h"

#include <jerror.h>

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

// Note [bombs]
// A few bytes can announce work for minutes: a giant picture, or one that thousands of scans refine. So before libjpeg
// makes room for coefficients, it must be possible that the bytes hold them, and the scans must not be too many:
// neither as such nor for the size of the picture. A sequential block takes two bits at least, a progressive one a bit
// of its first scan. Arithmetic coding takes nearly nothing for a flat picture, so what is taken for possible there is
// a choice: a million blocks of any content, and more where there are bytes for them.
constexpr std::int64_t kFreeArithmeticBlocks = 1 << 20, kArithmeticBlocksPerByte = 64;
// At the limit of pixels a picture in three full colours may have this many scans; ten are usual.
constexpr std::int64_t kScansOfLargest = 32;

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

// libjpeg-turbo's reader of one image, and the parameters that its writer would take over from it.
struct Reader {
  jpeg_decompress_struct in;
  jpeg_compress_struct out;
  JpegErrors errors;
  jpeg_progress_mgr progress;
  int max_scans = 0;
  unsigned components_seen = 0;

  Reader() {
    in.err = &errors.base;
    out.err = &errors.base;
    errors.allow_stray_bytes = true;
    if (setjmp(errors.jump)) throw_creation_error(errors.status);  // Note [libjpeg errors]
    jpeg_create_decompress(&in);
    jpeg_create_compress(&out);
    in.client_data = this;
    in.progress = &progress;
    progress.progress_monitor = on_progress;
  }
  ~Reader() {
    jpeg_destroy_decompress(&in);
    jpeg_destroy_compress(&out);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // Called by libjpeg before each step of reading.
  static void on_progress(j_common_ptr cinfo) {
    auto* self = static_cast<Reader*>(cinfo->client_data);
    if (self->in.input_scan_number > self->max_scans) {
      fail(cinfo, error(Code::too_many_scans, "over %d", self->max_scans));
    }
    for (int i = 0; i < self->in.comps_in_scan; ++i) {
      self->components_seen |= 1u << self->in.cur_comp_info[i]->component_index;
    }
  }

  // Note [bombs]. Called with libjpeg at the first scan's bytes.
  void require_possible(const TranscodeOptions& options) {
    const auto common = reinterpret_cast<j_common_ptr>(&in);
    const int scans = count_scans(in.src->next_input_byte, in.src->bytes_in_buffer, options.max_scans);
    if (scans > options.max_scans) fail(common, error(Code::too_many_scans, "over %d", options.max_scans));
    std::int64_t blocks = 0;
    for (int c = 0; c < in.num_components; ++c) {
      blocks += std::int64_t{in.comp_info[c].width_in_blocks} * in.comp_info[c].height_in_blocks;
    }
    const auto bytes = static_cast<std::int64_t>(in.src->bytes_in_buffer);
    const std::int64_t most = in.arith_code         ? kFreeArithmeticBlocks + kArithmeticBlocksPerByte * bytes
                              : in.progressive_mode ? 8 * bytes
                                                    : 4 * bytes;
    if (blocks > most) {
      fail(common, error(Code::truncated, "%lld bytes cannot hold %u x %u pixels", static_cast<long long>(bytes),
                         in.image_width, in.image_height));
    }
    const std::int64_t largest =
        std::max(options.max_pixels, kMaxPixels) / DCTSIZE2 * static_cast<std::int64_t>(kMostComponents);
    if (blocks * scans > largest * kScansOfLargest) {
      fail(common, error(Code::too_many_scans, "%d of %u x %u pixels", scans, in.image_width, in.image_height));
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

  const JBLOCK* row(jvirt_barray_ptr coefficients, JDIMENSION y) {
    return (*in.mem->access_virt_barray)(reinterpret_cast<j_common_ptr>(&in), coefficients, y, 1, FALSE)[0];
  }

  void describe(OutputHeader* header) const {
    *header = {};
    header->size = {static_cast<int>(out.image_width), static_cast<int>(out.image_height)};
    header->components = static_cast<std::size_t>(out.num_components);
    for (std::size_t c = 0; c < header->components; ++c) {
      const jpeg_component_info& from = out.comp_info[c];
      header->component[c] = {from.component_id, from.h_samp_factor, from.v_samp_factor,
                              static_cast<std::size_t>(from.quant_tbl_no), static_cast<unsigned>(from.dc_tbl_no)};
      const UINT16* const steps = out.quant_tbl_ptrs[from.quant_tbl_no]->quantval;
      std::copy_n(steps, DCTSIZE2, header->quant[header->component[c].quant].begin());
    }
    header->rgb = out.jpeg_color_space == JCS_RGB;
    header->jfif = {out.JFIF_minor_version, out.density_unit, out.X_density, out.Y_density};
  }

  // Of all blocks, in the order of a scan with restart markers every header.interval MCUs.
  void add_tokens(const OutputHeader& header, jvirt_barray_ptr* coefficients, TokenList* tokens) {
    int blocks_per_mcu = 0;
    for (std::size_t c = 0; c < header.components; ++c) blocks_per_mcu += header.across(c) * header.down(c);
    if (blocks_per_mcu > C_MAX_BLOCKS_IN_MCU) ERREXIT(&in, JERR_BAD_MCU_SIZE);
    const Size mcus = header.mcus();
    BlockTokens blocks(header.interval, tokens);
    bool good = true;
    for (int mcu_y = 0; mcu_y < mcus.height; ++mcu_y) {
      const JBLOCK* rows[kMostComponents][MAX_SAMP_FACTOR];
      for (std::size_t c = 0; c < header.components; ++c) {
        for (int y = 0; y < header.down(c); ++y) {
          const int block_y = mcu_y * header.down(c) + y;
          const bool real = block_y < header.blocks(c).height;
          rows[c][y] = real ? row(coefficients[c], static_cast<JDIMENSION>(block_y)) : nullptr;
        }
      }
      for (int mcu_x = 0; mcu_x < mcus.width; ++mcu_x) {
        blocks.begin_mcu(static_cast<std::size_t>(blocks_per_mcu));
        for (std::size_t c = 0; c < header.components; ++c) {
          const unsigned pair = header.component[c].pair;
          const int across = header.across(c), real = header.blocks(c).width - mcu_x * across;
          for (int y = 0; y < header.down(c); ++y) {
            for (int x = 0; x < across; ++x) {
              if (rows[c][y] != nullptr && x < real) {
                good &= blocks.add(rows[c][y][mcu_x * across + x], c, pair);
              } else {
                blocks.add_dummy(pair);
              }
            }
          }
        }
      }
    }
    blocks.end();
    if (!good) ERREXIT(&in, JERR_BAD_DCT_COEF);
  }

  Status read(const std::uint8_t* data, std::size_t size, const TranscodeOptions& options, JpegInfo* info,
              OutputHeader* header, TokenList* tokens) {
    if (setjmp(errors.jump)) return errors.status;  // Note [libjpeg errors]
    const auto common = reinterpret_cast<j_common_ptr>(&in);
    max_scans = options.max_scans;
    jpeg_mem_src(&in, data, static_cast<unsigned long>(size));
    errors.in_header = true;
    jpeg_read_header(&in, TRUE);
    errors.in_header = false;
    const std::size_t scan_bytes = in.src->bytes_in_buffer;
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

    require_possible(options);
    jvirt_barray_ptr* const coefficients = jpeg_read_coefficients(&in);
    require_every_scan();
    info->stray_bytes = errors.found_stray_bytes;
    if (options.check_only || in.num_components == 4) return {};
    jpeg_copy_critical_parameters(&in, &out);
    if (info->precision == kTwelveBits) requantise(coefficients);
    describe(header);
    header->interval = restart_interval(*header, options.tile_width, scan_bytes);
    info->exact = info->precision != kTwelveBits;
    add_tokens(*header, coefficients, tokens);
    return {};
  }
};

}  // namespace

Status read_coefficients(const std::uint8_t* data, std::size_t size, const TranscodeOptions& options, JpegInfo* info,
                         OutputHeader* header, TokenList* tokens) {
  const std::size_t precision_at = find_precision(data, size);
  info->precision = precision_at != 0 ? data[precision_at] : 8;
  std::vector<std::uint8_t> patched;
  if (info->precision == kTwelveBits) {
    patched.assign(data, data + size);
    patched[precision_at] = 8;
    data = patched.data();
  }
  return Reader().read(data, size, options, info, header, tokens);
}

}  // namespace fastpipe
