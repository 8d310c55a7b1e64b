#include "engine/picture.h"

#include <cstddef>
#include <cstring>
#include <exception>
#include <new>

namespace fastpipe {
namespace {

// Four bytes are written for three; the pixel to the right then overwrites the fourth. The last one has no such
// neighbour.
void copy_row(const std::uint8_t* rgbx, std::uint8_t* rgb, int width) {
  for (int x = 1; x < width; ++x, rgbx += 4, rgb += 3) std::memcpy(rgb, rgbx, 4);
  std::memcpy(rgb, rgbx, 3);
}

void copy_rows(void* context, int y, int count, const std::uint8_t* rgbx, std::ptrdiff_t stride) {
  const auto* out = static_cast<const PixelSpan*>(context);
  for (int i = 0; i < count; ++i) copy_row(rgbx + i * stride, out->row(y + i), out->size.width);
}

}  // namespace

RowSink rgb_rows(const PixelSpan* out) { return {const_cast<PixelSpan*>(out), copy_rows}; }

Status PictureReader::run(const File& file, std::uint64_t offset, std::uint32_t size, const PixelSpan& out) noexcept {
  Status status;
  try {
    status = fill(file, offset, size, out);
  } catch (const std::bad_alloc&) {
    status = error(Code::out_of_memory, "for %d x %d pixels", out.size.width, out.size.height);
  } catch (const std::exception& problem) {
    status = error(Code::internal, "%s", problem.what());
  }
  jpeg_.give_back();
  return status;
}

Status PictureReader::fill(const File& file, std::uint64_t offset, std::uint32_t size, const PixelSpan& out) {
  Status status = jpeg_.read(file, offset, size);
  if (!status.ok()) return status;
  status = jpeg_.open(out.size);
  if (!status.ok()) return status;
  return jpeg_.decode(1, {0, 0, out.size.width, out.size.height}, rgb_rows(&out));
}

}  // namespace fastpipe
