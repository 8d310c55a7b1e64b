// Pictures in memory -> rows of a batch, by threads that live as long as the call.
#pragma once

#include <cstdint>
#include <vector>

#include "base/image.h"
#include "engine/engine.h"
#include "engine/row.h"

namespace fastpipe {

// Where a batch goes: (rows, size.height, size.width, 3), or planar: (rows, 3, size.height, size.width).
struct BatchSpan {
  std::uint8_t* data = nullptr;
  Size size;
  bool planar = false;
};

// A thread's scratch.
struct RowScratch {
  RowWorker worker{nullptr};
  std::vector<std::uint8_t> pixels;  // of a row that becomes planes
};

// Fills row out_row of `images` from pictures[i] as tasks[i] and the options say, and returns the rows that failed, in
// order. The calling thread takes part with `scratch`; threads - 1 others help, and end before this returns, so that
// nothing is left that a fork could break. Throws what ThreadPool throws.
std::vector<RowError> fill_rows(const std::vector<const std::uint8_t*>& pictures, const std::vector<RowTask>& tasks,
                                RowOptions options, const BatchSpan& images, int threads, RowScratch* scratch);

}  // namespace fastpipe
