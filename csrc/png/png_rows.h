// A PNG's packed samples -> ids, rows of pixels of a form, or samples of 8 or 16 bits.
#pragma once

#include <cstdint>
#include <vector>

#include "base/image.h"
#include "base/row_sink.h"
#include "png/png_decoder.h"
#include "png/png_header.h"

namespace fastpipe {

// The numbers of a row of gray values or palette indices of at most 8 bits, a byte each, exactly as they are stored.
// `room` holds them where they are packed; else it is not used.
const std::uint8_t* png_ids(const PngHeader& header, const std::uint8_t* row, std::vector<std::uint8_t>* room);

// Gives the rows of `region`, which are ready, to a sink, in its form. First, gray of fewer bits is stretched to 8, and
// indices are looked up; then 8 bits become 16 by a multiplication by 257, and 16 become 8 by their higher byte; then
// colours become gray as Pillow's L, or gray three colours. Alpha is 0 where a tRNS chunk says so, and its most where
// nothing says anything. Refuses indices that the palette lacks.
Status png_rows(const PngDecoder& decoder, Rect region, RowSink sink, std::vector<std::uint8_t>* room);

// What a pixel is once palettes are looked up, fewer bits than 8 are stretched, and a tRNS chunk has become alpha:
// gray, gray and alpha, RGB, or RGB and alpha.
int png_channels(const PngParts& parts);

// Writes those of all rows, which are ready: (height, width, png_channels) of uint8, or of uint16 where the PNG has 16
// bits. Refuses as png_rows.
Status png_samples(const PngDecoder& decoder, std::uint8_t* out);

}  // namespace fastpipe
