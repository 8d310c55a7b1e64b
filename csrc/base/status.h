// The codes that native work can end with and their words: the only list of them.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>

namespace fastpipe {

// X(name, words). The words are what a user reads, followed by the status's detail.
#define FASTPIPE_CODES(X)                                               \
  X(ok, "no error")                                                     \
  X(cancelled, "cancelled before it ran")                               \
  X(open_failed, "the shard cannot be opened")                          \
  X(shard_changed, "the shard has changed since it was packed")         \
  X(read_failed, "the shard cannot be read")                            \
  X(shard_too_short, "the sample is beyond the end of the shard")       \
  X(hash_mismatch, "the bytes have changed since they were packed")     \
  X(not_jpeg, "the bytes are not a JPEG")                               \
  X(not_coefficients, "the bytes are not a KEY.fpc")                    \
  X(coefficients_damaged, "the coefficients are damaged")               \
  X(truncated, "the JPEG is truncated")                                 \
  X(corrupt, "the JPEG is corrupt")                                     \
  X(unsupported, "the JPEG has an unsupported format")                  \
  X(too_large, "the picture is larger than the size limit")             \
  X(too_many_scans, "the JPEG has more progressive scans than allowed") \
  X(size_mismatch, "the JPEG's dimensions differ from the index")       \
  X(not_png, "the bytes are not a PNG")                                 \
  X(png_truncated, "the PNG is truncated")                              \
  X(png_corrupt, "the PNG is corrupt")                                  \
  X(png_surplus, "the PNG is corrupt: it has more pixels than it says") \
  X(png_unsupported, "the PNG has an unsupported format")               \
  X(png_size_mismatch, "the PNG's dimensions differ from the index")    \
  X(tiff_corrupt, "the TIFF is corrupt")                                \
  X(tiff_size_mismatch, "the TIFF's dimensions differ from the index")  \
  X(bad_crop, "the crop is not inside the image")                       \
  X(out_of_memory, "not enough memory")                                 \
  X(internal, "internal error; please report it")

enum class Code : std::int32_t {
#define X(name, words) name,
  FASTPIPE_CODES(X)
#undef X
};

inline const char* words(Code code) {
  switch (code) {
#define X(name, text) \
  case Code::name:    \
    return text;
    FASTPIPE_CODES(X)
#undef X
  }
  return "unknown code";
}

// How one piece of work ended. Plain data, so that it survives a longjmp and needs no allocation. Dozens are made for a
// row: only as much is set as has a meaning.
struct Status {
  Code code = Code::ok;
  char detail[216];

  Status() { detail[0] = '\0'; }
  bool ok() const { return code == Code::ok; }
};

__attribute__((format(printf, 2, 3))) inline Status error(Code code, const char* format, ...) {
  Status status;
  status.code = code;
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(status.detail, sizeof status.detail, format, arguments);
  va_end(arguments);
  return status;
}

}  // namespace fastpipe
