#include "jpeg/jpeg_errors.h"

#include <jerror.h>

#include "jpeg/markers.h"

namespace fastpipe {
namespace {

JpegErrors* errors_of(j_common_ptr cinfo) { return reinterpret_cast<JpegErrors*>(cinfo->err); }

Code code_of(int message) {
  switch (message) {
    case JERR_OUT_OF_MEMORY:
      return Code::out_of_memory;
    case JERR_NO_SOI:
    case JERR_INPUT_EMPTY:
      return Code::not_jpeg;
    case JERR_INPUT_EOF:
    case JWRN_JPEG_EOF:
      return Code::truncated;
    case JERR_IMAGE_TOO_BIG:
      return Code::too_large;
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_J_COLORSPACE:
    case JERR_BAD_MCU_SIZE:
    case JERR_BAD_PRECISION:
    case JERR_CCIR601_NOTIMPL:
    case JERR_COMPONENT_COUNT:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_SOF_UNSUPPORTED:
      return Code::unsupported;
    default:
      return Code::corrupt;
  }
}

[[noreturn]] void fail_with_message(j_common_ptr cinfo) {
  char text[JMSG_LENGTH_MAX];
  (*cinfo->err->format_message)(cinfo, text);
  fail(cinfo, error(code_of(cinfo->err->msg_code), "%s", text));
}

bool harmless(const JpegErrors& errors) {
  switch (errors.base.msg_code) {
    case JWRN_EXTRANEOUS_DATA:
      return errors.in_header || errors.base.msg_parm.i[1] == marker::kEnd;
    case JWRN_ADOBE_XFORM:  // an unknown colour transform code: every decoder takes it for YCbCr
    case JWRN_JFIF_MAJOR:   // an unknown JFIF version
      return true;
    default:
      return false;
  }
}

void on_message(j_common_ptr cinfo, int level) {
  if (level >= 0) return;  // a trace
  JpegErrors* errors = errors_of(cinfo);
  if (!errors->allow_stray_bytes || !harmless(*errors)) fail_with_message(cinfo);
  errors->found_stray_bytes = true;
}

void print_nothing(j_common_ptr) {}

}  // namespace

JpegErrors::JpegErrors() {
  jpeg_std_error(&base);
  base.error_exit = fail_with_message;
  base.emit_message = on_message;
  base.output_message = print_nothing;
}

void JpegErrors::reset() {
  status = {};
  in_header = false;
  found_stray_bytes = false;
}

void fail(j_common_ptr cinfo, const Status& status) {
  JpegErrors* errors = errors_of(cinfo);
  errors->status = status;
  std::longjmp(errors->jump, 1);
}

}  // namespace fastpipe
