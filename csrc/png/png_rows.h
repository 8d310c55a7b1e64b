// A PNG's packed samples -> ids, or rows of RGBX.
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

// Gives the rows of `region`, which are ready, to a sink: gray of fewer bits stretched to 255, indices looked up,
// transparency left out. Refuses 16 bits, and indices that the palette lacks.
Status png_rgbx(const PngDecoder& decoder, Rect region, RowSink sink, std::vector<std::uint8_t>* room);

}  // namespace fastpipe
