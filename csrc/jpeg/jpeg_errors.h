// libjpeg's errors and warnings -> a Status.
#pragma once

#include <cstddef>
#include <cstdio>

#include <jpeglib.h>

#include <csetjmp>

#include "base/status.h"

#ifndef LIBJPEG_TURBO_VERSION
#error "fastpipe needs libjpeg-turbo; the jpeglib.h found is of another library (Debian: libjpeg62-turbo-dev)"
#endif

namespace fastpipe {

// Note [static libjpeg]
// libjpeg-turbo is linked as an archive, with its symbols hidden, where the system has an archive that can be
// (setup.py). A shared libjpeg's symbols are looked up in the whole process: another libjpeg that a program has loaded
// for all to see (RTLD_GLOBAL) would be called in its place. Debian's archive is position independent but for
// jpeg_std_error, which looks for stderr. So JpegErrors fills libjpeg's error manager by itself.

// Note [libjpeg errors]
// libjpeg reports a fatal error by calling error_exit, which must not return: it longjmps to the setjmp of the
// function that called libjpeg. Such a function, and all between it and libjpeg, owns nothing with a destructor, and
// reads no local that changed after its setjmp. What must be freed lives in a struct whose owner frees it.
// Warnings are errors too: libjpeg turns a truncated file into gray pixels with no more than a warning. The one
// exception is asked for by name: `allow_stray_bytes`.
struct JpegErrors {
  jpeg_error_mgr base = {};  // first: libjpeg hands back a pointer to it
  std::jmp_buf jump;
  Status status;
  // Stray bytes between segments or before the end marker lose no pixel, and some cameras write them.
  bool allow_stray_bytes = false;
  bool in_header = false;
  bool found_stray_bytes = false;

  JpegErrors();
  JpegErrors(const JpegErrors&) = delete;
  JpegErrors& operator=(const JpegErrors&) = delete;

  // Forgets the last image.
  void reset();
};

// Ends the libjpeg call in progress with `status`. Never returns.
[[noreturn]] void fail(j_common_ptr cinfo, const Status& status);

// For a decoder that libjpeg did not create: std::bad_alloc, or what else libjpeg said (it is of another version than
// its header).
[[noreturn]] void throw_creation_error(const Status& status);

}  // namespace fastpipe
