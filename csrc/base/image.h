// Plain geometry and a non-owning view of pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace fastpipe {

struct Size {
  int width = 0;
  int height = 0;
};

// Pillow's decompression-bomb error level: a quarter of a GiB of 24-bit pixels, twice over.
constexpr std::int64_t kMaxPixels = 178'956'970;

// A whole number of pixels: columns [x, x + width), rows [y, y + height).
struct Rect {
  int x = 0;
  int y = 0;
  int width = 0;
  int height = 0;

  bool inside(Size image) const {
    return x >= 0 && y >= 0 && width > 0 && height > 0 && width <= image.width - x && height <= image.height - y;
  }
};

// A rectangle with fractional edges, in pixels.
struct Box {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
};

inline bool inside(const Box& box, const Rect& bounds) {
  constexpr double kSlack = 1e-6;  // of a pixel; a plan's arithmetic rounds
  return box.width > 0 && box.height > 0 && box.x >= bounds.x - kSlack && box.y >= bounds.y - kSlack &&
         box.x + box.width <= bounds.x + bounds.width + kSlack &&
         box.y + box.height <= bounds.y + bounds.height + kSlack;
}

// What a pixel is made of: gray (1), red, green and blue (3), or these and alpha (4); samples of 8 or 16 bits.
struct PixelForm {
  int channels = 3;
  int bits = 8;

  int bytes() const { return channels * bits / 8; }

  // Of a pixel in the rows that a decoder gives: RGB of 8 bits has a fourth byte there, which means nothing.
  int bytes_decoded() const { return channels == 3 && bits == 8 ? 4 : bytes(); }

  bool operator==(const PixelForm& other) const { return channels == other.channels && bits == other.bits; }
};

// Rows of pixels, `stride` bytes apart.
struct PixelSpan {
  std::uint8_t* data = nullptr;
  Size size;
  std::ptrdiff_t stride = 0;

  std::uint8_t* row(int y) const { return data + y * stride; }
};

// Calls `work` with the bytes of a pixel of any form as a constant: copies of constant size are single instructions.
template <typename Work>
void with_pixel_bytes(int bytes, const Work& work) {
  switch (bytes) {
    case 1:
      return work(std::integral_constant<int, 1>());
    case 2:
      return work(std::integral_constant<int, 2>());
    case 3:
      return work(std::integral_constant<int, 3>());
    case 4:
      return work(std::integral_constant<int, 4>());
    case 6:
      return work(std::integral_constant<int, 6>());
    default:
      return work(std::integral_constant<int, 8>());
  }
}

// Pixels of RGBX -> RGB, one after the other. Four bytes are written for three; the pixel to the right then overwrites
// the fourth. The last one has no such neighbour.
inline void copy_rgb(const std::uint8_t* rgbx, std::uint8_t* rgb, int count) {
  for (int x = 1; x < count; ++x, rgbx += 4, rgb += 3) std::memcpy(rgb, rgbx, 4);
  if (count > 0) std::memcpy(rgb, rgbx, 3);
}

// A thread's scratch buffer that one giant picture made larger than this is given back.
constexpr std::size_t kKeptBytes = 64 << 20;

template <typename Element>
void give_back_if_giant(std::vector<Element>* memory) {
  if (memory->capacity() * sizeof(Element) > kKeptBytes) std::vector<Element>().swap(*memory);
}

inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

inline Size scaled_down(Size size, int by) { return {ceil_div(size.width, by), ceil_div(size.height, by)}; }

}  // namespace fastpipe
