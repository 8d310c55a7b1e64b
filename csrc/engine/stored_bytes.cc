#include "engine/stored_bytes.h"

#include <algorithm>
#include <cinttypes>

#include "base/xxh3.h"

namespace fastpipe {
namespace {

// A user who let pack take larger pictures wants to load them: then the index is the limit.
std::int64_t most_pixels(Size expected) {
  return std::max(kMaxPixels, static_cast<std::int64_t>(expected.width) * expected.height);
}

Status compare(Size expected, Size found, Code code, const char* format) {
  if (found.width == expected.width && found.height == expected.height) return {};
  return error(code, "the index says %d x %d, the %s %d x %d", expected.width, expected.height, format, found.width,
               found.height);
}

}  // namespace

Status StoredBytes::read(const File& file, std::uint64_t offset, std::uint32_t size) {
  const Status status = file.check(offset, size);
  if (!status.ok()) return status;
  bytes_.resize(size);
  borrow(bytes_.data(), size);
  return file.read(offset, bytes_.data(), bytes_.size());
}

Status StoredBytes::check(std::uint64_t expected) const {
  const std::uint64_t found = xxh3_64(data_, size_);
  if (found == expected) return {};
  return error(Code::hash_mismatch, "expected XXH3-64 %016" PRIx64 ", got %016" PRIx64, expected, found);
}

Status StoredBytes::open(Size expected, JpegDecoder* decoder) const {
  const Status status = decoder->open(data_, size_, most_pixels(expected));
  if (!status.ok()) return status;
  return compare(expected, decoder->size(), Code::size_mismatch, "JPEG");
}

Status StoredBytes::open(Size expected, PngDecoder* decoder) {
  const Status status = decoder->open(bytes_.data(), bytes_.size(), most_pixels(expected));
  if (!status.ok()) return status;
  return compare(expected, decoder->header().size, Code::png_size_mismatch, "PNG");
}

}  // namespace fastpipe
