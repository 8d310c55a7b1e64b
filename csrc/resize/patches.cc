#include "resize/patches.h"

#include <cstring>

namespace fastpipe {

PixelSpan PatchWriter::room(Size size, int pixel_bytes) {
  size_ = size;
  const std::ptrdiff_t stride = static_cast<std::ptrdiff_t>(size.width) * pixel_bytes;
  room_.resize(static_cast<std::size_t>(stride * size.height));
  return {room_.data(), size, stride};
}

void PatchWriter::write(PatchForm form, int pixel_bytes, std::uint8_t* patches) const {
  const std::size_t line = static_cast<std::size_t>(form.side) * pixel_bytes;  // of a patch
  const std::size_t stride = static_cast<std::size_t>(size_.width) * pixel_bytes;
  const int columns = size_.width / form.side, rows = size_.height / form.side;
  std::uint8_t* to = patches;
  const auto write_patch = [&](int row, int column) {
    const std::uint8_t* from = room_.data() + row * form.side * stride + column * line;
    for (int y = 0; y < form.side; ++y, from += stride, to += line) std::memcpy(to, from, line);
  };
  for (int top = 0; top < rows; top += form.merge) {
    for (int left = 0; left < columns; left += form.merge) {
      for (int y = 0; y < form.merge; ++y) {
        for (int x = 0; x < form.merge; ++x) write_patch(top + y, left + x);
      }
    }
  }
}

}  // namespace fastpipe
