// The extension `fastpipe._engine`: a list of its topics. They check what comes in, let the GIL go while C++ works, and
// call one core function; nothing else in csrc/ knows Python.
#include <libdeflate.h>
#include <pybind11/pybind11.h>

#include <string>

#include "coefficients/block_kernels.h"
#include "jpeg/decode/jpeg.h"
#include "jpeg/jpeg_errors.h"
#include "jpeg/unstuff.h"
#include "python/register.h"
#include "resize/resize.h"

// Note [without a GIL]
PYBIND11_MODULE(_engine, m, pybind11::mod_gil_not_used()) {
  using namespace fastpipe;

  m.doc() = "The native engine; used by fastpipe.engine, fastpipe.format.records and fastpipe.packing.";
  // What is found out about the machine once is found out now: a fork while another thread does would leave the child
  // waiting for it.
  best_kernels();
  BaselineDecoder::available();
  best_block_kernels();
  best_unstuff();
  m.attr("MAX_PIXELS") = kMaxPixels;
  m.attr("LIBJPEG_TURBO_VERSION") = std::to_string(LIBJPEG_TURBO_VERSION_NUMBER);
  m.attr("LIBDEFLATE_VERSION") = LIBDEFLATE_VERSION_STRING;
  register_status(m);
  register_engine(m);
  register_pictures(m);
  register_masks(m);
  register_coefficients(m);
  register_memory_rows(m);
  register_plan(m);
  register_packing(m);
  register_headers(m);
  register_resize(m);
}
