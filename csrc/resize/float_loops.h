// Sums of float32 in torch's order, across and down.
#pragma once

#include <cstddef>
#include <cstdint>

#include "resize/float_axis.h"

namespace fastpipe {

// Note [float arithmetic]
// torch resizes across first, then down, and rounds nothing in between. Its compiled code adds an output's first
// product to those of the next four inputs, and so on, each product rounded before it is added; those of the last one
// to three inputs are added without being rounded (fused). A sum of float32 depends on this, so it is done in the same
// way here: the result is the same number, and the same on every machine.
struct FloatLoops {
  // `line`: a row of the input, pixels of so many channels one behind the other. `out`: `outputs` pixels.
  void (*across)(const float* line, int channels, const FloatAxis& axis, int outputs, float* out);
  // `rows`: `stride` numbers apart. `out`: `count` sums, side by side.
  void (*down)(const float* rows, std::ptrdiff_t stride, const FloatTaps& taps, int count, float* out);
  // The same, rounded to samples of 16 bits.
  void (*down_rounded)(const float* rows, std::ptrdiff_t stride, const FloatTaps& taps, int count, std::uint16_t* out);
};

// The fastest of this machine.
const FloatLoops& float_loops();

}  // namespace fastpipe
