// What a decoder gives its rows to.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/image.h"

namespace fastpipe {

// Takes decoded rows, top down: `count` rows of pixels of PixelForm::bytes_decoded() each, `stride` bytes apart, the
// first of which is row `y` of the region. May not throw. After the last pixel of a row, kReadBeyond bytes are
// readable. A decode that is begun again by other means gives its rows again, from the first.
struct RowSink {
  static constexpr std::size_t kReadBeyond = 64;

  void* context;
  void (*take)(void* context, int y, int count, const std::uint8_t* rows, std::ptrdiff_t stride);
  PixelForm form = {};  // of the pixels that it wants
  bool packed = false;  // pixels of a PNG come with PixelForm::bytes() each
};

// Takes rows of a decode that only looks for damage.
inline void forget_rows(void*, int, int, const std::uint8_t*, std::ptrdiff_t) {}

}  // namespace fastpipe
