#include "engine/file_header.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "jpeg/markers.h"
#include "png/png_header.h"

namespace fastpipe {
namespace {

constexpr int kMaxSide = 65500;     // libjpeg's limit
constexpr int kMaxPngSide = 65535;  // what an index can hold

// A part of a file that moves on with what is asked for. Most headers without Exif fit into one.
class Window {
 public:
  Window(int file, std::uint64_t offset, std::uint64_t size) : file_(file), offset_(offset), size_(size) {}

  // `count` bytes at `at`; nullptr where the picture ends before, or a read fails.
  const std::uint8_t* get(std::uint64_t at, std::size_t count) {
    if (at > size_ || count > size_ - at) return nullptr;
    if (at < begin_ || at + count > end_) {
      if (!fill(at) || at + count > end_) return nullptr;
    }
    return bytes_.data() + (at - begin_);
  }

  int error() const { return error_; }

 private:
  bool fill(std::uint64_t at) {
    const std::size_t wanted = static_cast<std::size_t>(std::min<std::uint64_t>(bytes_.size(), size_ - at));
    begin_ = end_ = at;
    while (end_ - begin_ < wanted) {
      const auto have = static_cast<std::size_t>(end_ - begin_);
      const ssize_t got = ::pread(file_, bytes_.data() + have, wanted - have, static_cast<off_t>(offset_ + end_));
      if (got > 0) {
        end_ += static_cast<std::uint64_t>(got);
      } else if (got == 0) {
        return true;  // shorter than it was
      } else if (errno != EINTR) {
        error_ = errno;
        return false;
      }
    }
    return true;
  }

  const int file_;
  const std::uint64_t offset_, size_;
  std::uint64_t begin_ = 0, end_ = 0;  // of what bytes_ holds
  int error_ = 0;
  std::array<std::uint8_t, 4096> bytes_;
};

int word(const std::uint8_t* bytes) { return bytes[0] << 8 | bytes[1]; }

// Whether a PNG has a colour or indices that are clear.
bool has_transparency(Window* window) {
  for (std::uint64_t at = kPngStartBytes;;) {
    const std::uint8_t* const chunk = window->get(at, 8);
    if (chunk == nullptr || std::memcmp(chunk + 4, "IDAT", 4) == 0) return false;
    if (std::memcmp(chunk + 4, "tRNS", 4) == 0) return true;
    at += 12 + (static_cast<std::uint64_t>(word(chunk)) << 16) + static_cast<std::uint64_t>(word(chunk + 2));
  }
}

bool read_png(Window* window, FileHeader* header) {
  const std::uint8_t* const bytes = window->get(0, kPngStartBytes);
  PngHeader png;
  constexpr std::int64_t kAnyPixels = std::int64_t{kMaxPngSide} * kMaxPngSide;
  if (bytes == nullptr || !parse_png_start(bytes, kPngStartBytes, kAnyPixels, &png).ok()) return false;
  if (std::max(png.size.width, png.size.height) > kMaxPngSide) return false;
  header->width = static_cast<std::uint16_t>(png.size.width);
  header->height = static_cast<std::uint16_t>(png.size.height);
  const bool alpha = png_channels(png.color) % 2 == 0 || has_transparency(window);
  header->channels = alpha ? 4 : png.color == PngColor::gray ? 1 : 3;
  header->bits = png.bits == 16 ? 16 : 8;
  return true;
}

// False where the engine may not take the picture, or nothing is known of it.
bool read(Window* window, FileHeader* header) {
  const std::uint8_t* bytes = window->get(0, sizeof kPngSignature);
  if (bytes != nullptr && has_png_signature(bytes, sizeof kPngSignature)) return read_png(window, header);
  bytes = window->get(0, 2);
  if (bytes == nullptr || bytes[0] != 0xFF || bytes[1] != marker::kStart) return false;
  int components = 0;
  for (std::uint64_t at = 2;;) {
    bytes = window->get(at, 4);
    if (bytes == nullptr || bytes[0] != 0xFF) return false;
    const int code = bytes[1], length = word(bytes + 2);
    const bool frame = code == marker::kBaselineFrame || code == marker::kExtendedFrame;
    const bool passed = (code >= marker::kFirstApp && code <= marker::kLastApp) || code == marker::kComment ||
                        code == marker::kQuantTables || code == marker::kHuffmanTables ||
                        code == marker::kRestartInterval;
    if (length < 2) return false;
    if (frame) {
      bytes = window->get(at + 4, 6);
      if (bytes == nullptr || length < 8 || components != 0 || bytes[0] != 8) return false;
      const int height = word(bytes + 1), width = word(bytes + 3);
      components = bytes[5];
      if (components != 1 && components != 3) return false;
      if (width < 1 || height < 1 || std::max(width, height) > kMaxSide) return false;
      header->width = static_cast<std::uint16_t>(width);
      header->height = static_cast<std::uint16_t>(height);
      header->channels = static_cast<std::uint8_t>(components);
      header->bits = 8;
    } else if (code == marker::kScan) {
      bytes = window->get(at + 4, 1);
      return bytes != nullptr && components != 0 && bytes[0] == components;
    } else if (!passed) {
      return false;
    }
    at += 2 + static_cast<std::uint64_t>(length);
  }
}

}  // namespace

FileHeader read_file_header(int file, std::uint64_t offset, std::uint64_t size) {
  Window window(file, offset, size);
  FileHeader header = {};
  if (read(&window, &header)) {
    header.plain = 1;
    return header;
  }
  header = {};
  header.error = window.error();
  return header;
}

}  // namespace fastpipe
