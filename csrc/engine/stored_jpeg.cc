#include "engine/stored_jpeg.h"

#include <algorithm>
#include <cinttypes>

#include "base/xxh3.h"

namespace fastpipe {

Status StoredJpeg::read(const File& file, std::uint64_t offset, std::uint32_t size) {
  const Status status = file.check(offset, size);
  if (!status.ok()) return status;
  bytes_.resize(size);
  return file.read(offset, bytes_.data(), bytes_.size());
}

Status StoredJpeg::check(std::uint64_t expected) const {
  const std::uint64_t found = xxh3_64(bytes_.data(), bytes_.size());
  if (found == expected) return {};
  return error(Code::hash_mismatch, "expected XXH3-64 %016" PRIx64 ", got %016" PRIx64, expected, found);
}

Status StoredJpeg::open(Size expected) {
  // A user who let pack take larger pictures wants to load them: then the index is the limit.
  const std::int64_t pixels = std::max(kMaxPixels, static_cast<std::int64_t>(expected.width) * expected.height);
  const Status status = decoder_.open(bytes_.data(), bytes_.size(), pixels);
  if (!status.ok()) return status;
  const Size size = decoder_.size();
  if (size.width != expected.width || size.height != expected.height) {
    return error(Code::size_mismatch, "the index says %d x %d, the JPEG %d x %d", expected.width, expected.height,
                 size.width, size.height);
  }
  return status;
}

}  // namespace fastpipe
