#include "engine/stored_bytes.h"

#include <algorithm>
#include <cinttypes>

#include "base/at_least.h"
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

Status StoredBytes::begin(const File& file, std::uint64_t offset, std::size_t size, std::size_t room) {
  const Status status = file.check(offset, size);
  if (!status.ok()) return status;
  borrow(at_least(&room_, room), size);
  file_ = &file;
  offset_ = offset;
  known_ = 0;
  return status;
}

Status StoredBytes::read(const File& file, std::uint64_t offset, std::uint32_t size) {
  const Status status = begin(file, offset, size, size);
  return status.ok() ? read_range(0, size) : status;
}

Status StoredBytes::read_head(const File& file, std::uint64_t offset, std::uint32_t size) {
  const std::size_t head = std::min<std::size_t>(size, std::max(kFpcHeadBytes, kTiledHeadBytes));
  Status status = begin(file, offset, size, head);
  if (status.ok()) status = read_range(0, head);
  if (!status.ok() || is_tiled(data_, known_)) return status;
  data_ = at_least(&room_, size);
  const std::size_t all = is_fpc(data_, known_) ? FpcHeader::bytes(data_, known_) : size;
  const std::size_t needed = std::min<std::size_t>(all, size);
  return needed > known_ ? read_range(known_, needed) : status;
}

Status StoredBytes::read_more(CoefficientDecoder::Needed needed) {
  const std::size_t first = std::max(needed.first, known_);
  return first < needed.end ? read_range(first, needed.end) : Status();
}

Status StoredBytes::read_range(std::size_t first, std::size_t end) {
  if (first == known_) known_ = end;
  return read_part(this, first, room_.data() + first, end - first);
}

Status StoredBytes::read_part(void* context, std::uint64_t first, std::uint8_t* out, std::size_t count) {
  auto* const self = static_cast<StoredBytes*>(context);
  self->bytes_read_ += count;
  return self->file_->read(self->offset_ + first, out, count);
}

void StoredBytes::borrow(const std::uint8_t* data, std::size_t size) {
  data_ = data;
  file_ = nullptr;
  size_ = known_ = size;
  bytes_read_ = 0;
}

Status StoredBytes::check(std::uint64_t expected) {
  std::uint64_t found = 0;
  if (is_whole()) {
    found = xxh3_64(data_, size_);
  } else {
    constexpr std::size_t kPieceBytes = 1 << 20;
    std::vector<std::uint8_t> piece(std::min(size_, kPieceBytes));
    Xxh3Stream stream;
    for (std::size_t first = 0; first < size_; first += kPieceBytes) {
      const std::size_t count = std::min(size_ - first, kPieceBytes);
      const Status status = read_part(this, first, piece.data(), count);
      if (!status.ok()) return status;
      stream.add(piece.data(), count);
    }
    found = stream.digest();
  }
  if (found == expected) return {};
  return error(Code::hash_mismatch, "expected XXH3-64 %016" PRIx64 ", got %016" PRIx64, expected, found);
}

Status StoredBytes::open(Size expected, PictureDecoder* decoder) {
  PartReader rest = {this, read_part};
  if (file_ == nullptr) rest = {};
  const Status status = decoder->open(data_, known_, size_, rest, most_pixels(expected));
  if (!status.ok()) return status;
  if (decoder->is_tiled()) return compare(expected, decoder->size(), Code::tiff_size_mismatch, "TIFF");
  if (decoder->is_png()) return compare(expected, decoder->size(), Code::png_size_mismatch, "PNG");
  return compare(expected, decoder->size(), Code::size_mismatch, "image");
}

Status StoredBytes::open(Size expected, PngDecoder* decoder) const {
  const Status status = decoder->open(data_, size_, most_pixels(expected));
  if (!status.ok()) return status;
  return compare(expected, decoder->header().size, Code::png_size_mismatch, "PNG");
}

}  // namespace fastpipe
