// Coefficients, from whoever has them -> RGBX rows of a region, a strip of MCUs at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/image.h"
#include "base/row_sink.h"
#include "jpeg/decode/coefficient_rows.h"
#include "jpeg/decode/color.h"
#include "jpeg/decode/idct.h"
#include "jpeg/parsed_header.h"

namespace fastpipe {

// A gray picture, or YCbCr whose colours have one block an MCU.
struct StripPicture {
  Size size;
  int components = 0;
  int across = 1, down = 1;                                 // blocks of brightness in an MCU: 1 or 2
  std::array<const std::uint16_t*, kMostComponents> quant;  // of each component: 64 steps, row by row

  int mcus_per_row() const { return ceil_div(size.width, kBlockSide * across); }
  int mcu_rows() const { return ceil_div(size.height, kBlockSide * down); }
};

// What of the picture is decoded: MCUs [left, right) of rows [top, bottom).
struct StripWindow {
  Size mcu;
  int per_row = 0;
  int left = 0, right = 0, top = 0, bottom = 0;
};

// Gives the coefficients of one picture, strip by strip, top down.
class StripSource {
 public:
  virtual ~StripSource() = default;

  // Is told what will be read, and may have it begin further to the left. How many rows of MCUs it likes to give at
  // once: 1 or 2.
  virtual int begin(StripWindow* window) = 0;

  // Writes those of rows [top, bottom), of the window's columns, or says where they are. What it leaves alone is as the
  // strip before left it, or means nothing: it must not make an inverse DCT overflow. False where it gives up.
  virtual bool read(const StripWindow& window, int top, int bottom,
                    std::array<CoefficientRows, kMostComponents>* to) = 0;
};

// What it makes is bit-identical to libjpeg-turbo's pixels. Note [strips] in baseline_decoder.h
class StripDecoder {
 public:
  // Whether this machine has vector kernels: without them, libjpeg-turbo is faster.
  static bool available();

  // Decodes `region`, in pixels of the picture at 1/denominator of its size (1, 2, 4 or 8). False where it gives up;
  // rows may then have been given already.
  bool decode(const StripPicture& picture, int denominator, Rect region, StripSource* source, RowSink sink);

  // What decoding a region reads.
  StripWindow window_of(const StripPicture& picture, int denominator, Rect region);

 private:
  struct Plane {
    std::uint8_t* first = nullptr;  // the first sample of the strip; there is a row above and one below
    std::ptrdiff_t stride = 0;
    int block = 0;   // the side of a block in samples
    int blocks = 0;  // across
    int rows = 0;    // of a strip

    std::uint8_t* row(int y) const { return first + y * stride; }
  };

  bool decode_all(const StripPicture& picture, int denominator, Rect region, StripSource* source, RowSink sink);
  void scale(int denominator);
  bool can_upsample() const;
  Size colour_size() const;
  void plan_window();
  void lay_out();
  bool transform(int rows);
  void mend_edges(int top, int bottom);
  void keep_last_rows(int rows);
  static void copy_row(const Plane& plane, int from, int to);
  int give_rows(int y, int end, int strip_top, RowSink sink);
  void convert_row(int y, int strip_top, std::uint8_t* out);
  const std::uint8_t* color_row(const Plane& plane, int y, int strip_top, std::vector<std::uint8_t>* memory);

  // Of the picture at hand.
  const StripPicture* picture_ = nullptr;
  Rect region_;
  int wide_ = 1, high_ = 1;  // pixels of brightness for a sample of colour
  StripWindow window_;
  int rows_at_once_ = 1;
  std::array<Plane, kMostComponents> planes_;
  std::array<CoefficientRows, kMostComponents> coefficients_;
  std::ptrdiff_t row_stride_ = 0;
  const IdctKernels* idct_ = nullptr;
  const ColorKernels* color_ = nullptr;

  // Scratch, used again.
  std::vector<std::int16_t> coefficient_memory_;
  std::vector<std::uint8_t> plane_memory_;
  std::vector<std::uint16_t> sums_;
  std::vector<std::uint8_t> cb_, cr_;
  std::vector<std::uint8_t> rows_;
};

}  // namespace fastpipe
