// Rows as JPEGs give them, gray or RGB of 8 bits -> rows of any form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/image.h"
#include "base/row_sink.h"

namespace fastpipe {

// Stands before a sink; reuses its memory.
class FormRows {
 public:
  // What a JPEG's decoder gives its rows to, so that `to` gets them in its form: samples of 16 bits are 257 times those
  // of 8, and alpha has its most. It must stay in place until the rows have been given. `width`: of the rows.
  RowSink before(RowSink to, int width);

  void give_back() { give_back_if_giant(&room_); }

 private:
  static void take(void* context, int y, int count, const std::uint8_t* rows, std::ptrdiff_t stride);

  RowSink to_ = {};
  int width_ = 0;
  std::vector<std::uint8_t> room_;
};

}  // namespace fastpipe
