// Rows of samples -> rows with PNG's filters, as they are deflated.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastpipe {

// Each row gets that of the filters "left" and "up" which makes the smaller numbers (the sum of their sizes as signed
// bytes). The other filters make files 2 % smaller, and rows that cannot be read as fast.
//   rows: (count, row_bytes)
//   strip_rows: the first of so many rows does not look up; Note [inflating]
//   out: (count, 1 + row_bytes)
void png_filter_rows(const std::uint8_t* rows, int count, std::size_t row_bytes, std::size_t pixel_bytes,
                     int strip_rows, std::uint8_t* out);

}  // namespace fastpipe
