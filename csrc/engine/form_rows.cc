#include "engine/form_rows.h"

#include <cstring>

#include "base/at_least.h"

namespace fastpipe {
namespace {

void convert(const std::uint8_t* row, int count, PixelForm form, std::uint8_t* out) {
  if (form.bits == 8) {  // RGBA
    std::memcpy(out, row, static_cast<std::size_t>(count) * 4);
    for (int x = 0; x < count; ++x) out[4 * x + 3] = 255;
    return;
  }
  auto* to = reinterpret_cast<std::uint16_t*>(out);
  if (form.channels == 1) {
    for (int x = 0; x < count; ++x) to[x] = static_cast<std::uint16_t>(row[x] * 257);
    return;
  }
  for (int x = 0; x < count; ++x, row += 4, to += form.channels) {
    for (int c = 0; c < 3; ++c) to[c] = static_cast<std::uint16_t>(row[c] * 257);
    if (form.channels == 4) to[3] = 65535;
  }
}

}  // namespace

RowSink FormRows::before(RowSink to, int width) {
  const PixelForm given = {to.form.channels == 1 ? 1 : 3, 8};
  if (given == to.form) return to;
  to_ = to;
  width_ = width;
  return {this, take, given};
}

void FormRows::take(void* context, int y, int count, const std::uint8_t* rows, std::ptrdiff_t stride) {
  auto* const self = static_cast<FormRows*>(context);
  const auto bytes = static_cast<std::size_t>(self->width_) * static_cast<std::size_t>(self->to_.form.bytes_decoded());
  std::uint8_t* const room = at_least(&self->room_, bytes * static_cast<std::size_t>(count) + RowSink::kReadBeyond);
  for (int i = 0; i < count; ++i) {
    convert(rows + i * stride, self->width_, self->to_.form, room + static_cast<std::size_t>(i) * bytes);
  }
  self->to_.take(self->to_.context, y, count, room, static_cast<std::ptrdiff_t>(bytes));
}

}  // namespace fastpipe
