#include "jpeg/jpeg_errors.h"

#include <jerror.h>

#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "jpeg/markers.h"

namespace fastpipe {
namespace {

// The texts of jerror.h, which are a table for those who define JMESSAGE. Note [static libjpeg]
constexpr const char JCOPYRIGHT_SHORT[] = "", JVERSION[] = "";  // in a header that is libjpeg's own; not in errors
constexpr const char* kMessages[] = {
#define JMESSAGE(code, string) string,
#include <jerror.h>
};

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

// Writes the message, up to JMSG_LENGTH_MAX bytes with the end.
void format_message(j_common_ptr cinfo, char* text) {
  const jpeg_error_mgr& err = *cinfo->err;
  const bool known = err.msg_code > 0 && err.msg_code <= err.last_jpeg_message;
  const char* const format = kMessages[known ? err.msg_code : 0];
  if (std::strstr(format, "%s") != nullptr) {
    std::snprintf(text, JMSG_LENGTH_MAX, format, err.msg_parm.s);
  } else {
    const int* i = err.msg_parm.i;
    std::snprintf(text, JMSG_LENGTH_MAX, format, i[0], i[1], i[2], i[3], i[4], i[5], i[6], i[7]);
  }
}

[[noreturn]] void fail_with_message(j_common_ptr cinfo) {
  char text[JMSG_LENGTH_MAX];
  format_message(cinfo, text);
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

void begin_image(j_common_ptr cinfo) {
  cinfo->err->num_warnings = 0;
  cinfo->err->msg_code = 0;
}

}  // namespace

JpegErrors::JpegErrors() {
  base.error_exit = fail_with_message;
  base.emit_message = on_message;
  base.output_message = print_nothing;
  base.format_message = format_message;
  base.reset_error_mgr = begin_image;
  base.jpeg_message_table = kMessages;
  base.last_jpeg_message = JMSG_LASTMSGCODE - 1;
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

void throw_creation_error(const Status& status) {
  if (status.code == Code::out_of_memory) throw std::bad_alloc();
  throw std::runtime_error(std::string("libjpeg-turbo cannot be used: ") + status.detail);
}

}  // namespace fastpipe
