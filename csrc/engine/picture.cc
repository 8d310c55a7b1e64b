#include "engine/picture.h"

#include <cstddef>
#include <cstring>
#include <exception>
#include <new>

namespace fastpipe {
namespace {

void copy_rgb_rows(void* context, int y, int count, const std::uint8_t* rgbx, std::ptrdiff_t stride) {
  const auto* out = static_cast<const PixelSpan*>(context);
  for (int i = 0; i < count; ++i) copy_rgb(rgbx + i * stride, out->row(y + i), out->size.width);
}

void copy_rows(void* context, int y, int count, const std::uint8_t* rows, std::ptrdiff_t stride) {
  const auto* out = static_cast<const PixelSpan*>(context);
  for (int i = 0; i < count; ++i)
    std::memcpy(out->row(y + i), rows + i * stride, static_cast<std::size_t>(out->stride));
}

}  // namespace

RowSink rows_into(const PixelSpan* out, PixelForm form) {
  return {const_cast<PixelSpan*>(out), form.bytes() == form.bytes_decoded() ? copy_rows : copy_rgb_rows, form};
}

template <typename Fill>
Status PictureReader::guarded(const File& file, std::uint64_t offset, std::uint32_t size, Size out,
                              const Fill& fill) noexcept {
  Status status;
  try {
    status = stored_.read(file, offset, size);
    if (status.ok()) status = fill();
  } catch (const std::bad_alloc&) {
    status = error(Code::out_of_memory, "for %d x %d pixels", out.width, out.height);
  } catch (const std::exception& problem) {
    status = error(Code::internal, "%s", problem.what());
  }
  stored_.give_back();
  decoder_.give_back();
  mask_.give_back();
  return status;
}

Status PictureReader::run(const File& file, std::uint64_t offset, std::uint32_t size, const PixelSpan& out,
                          PixelForm form) noexcept {
  const Rect all = {0, 0, out.size.width, out.size.height};
  return guarded(file, offset, size, out.size, [&] {
    const Status status = stored_.open(out.size, &decoder_);
    return status.ok() ? decoder_.decode(1, all, rows_into(&out, form)) : status;
  });
}

Status PictureReader::run(const File& file, std::uint64_t offset, std::uint32_t size, const IdSpan& out) noexcept {
  return guarded(file, offset, size, out.size, [&] {
    const Status status = stored_.open(out.size, mask_.png());
    return status.ok() ? mask_.fill(out) : status;
  });
}

}  // namespace fastpipe
