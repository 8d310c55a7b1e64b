// Transcoding JPEGs, for Python.
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "coefficients/coefficient_writer.h"
#include "jpeg/transcode/transcode.h"
#include "python/gil.h"
#include "python/register.h"
#include "python/values.h"

namespace fastpipe {
namespace {

py::tuple transcode(const py::bytes& jpeg, const std::vector<std::pair<int, py::bytes>>& segments,
                    std::int64_t max_pixels, int max_scans, bool check_only, int tile, bool coefficients) {
  const Bytes bytes(jpeg);
  std::vector<Segment> list;
  list.reserve(segments.size());
  for (const auto& [marker, payload] : segments) {
    const Bytes piece(payload);
    const bool known = (marker >= 0xE0 && marker <= 0xEF) || marker == 0xFE;
    if (!known || piece.size > 65533) throw py::value_error("segments: expected APPn or COM of at most 65533 bytes");
    list.push_back({marker, piece.data, piece.size});
  }
  const TranscodeOptions options = {max_pixels, max_scans, tile, check_only};
  JpegInfo info;
  Status status;
  // Keeps its memory. What it wrote is copied before anything that might run other Python code on this thread.
  thread_local const auto transcoder = std::make_unique<Transcoder>();  // Note [thread-local data]
  thread_local const auto writer = std::make_unique<CoefficientWriter>();
  writer->clear();
  // `jpeg` and `segments` are held by this call.
  without_gil([&] {
    status = transcoder->run(bytes.data, bytes.size, list, options, &info, coefficients ? writer.get() : nullptr);
  });
  raise_if(status);
  const std::size_t size = coefficients ? writer->size() : transcoder->output_size();
  const std::uint8_t* const data = coefficients ? writer->data() : transcoder->output();
  py::object output = py::none();
  if (size > 0) output = py::bytes(reinterpret_cast<const char*>(data), size);
  py::dict found;
  found["width"] = info.width;
  found["height"] = info.height;
  found["components"] = info.components;
  found["precision"] = info.precision;
  found["progressive"] = info.progressive;
  found["arithmetic"] = info.arithmetic;
  found["stray_bytes"] = info.stray_bytes;
  found["exact"] = info.exact;
  found["jpeg_bytes"] = transcoder->output_size();
  return py::make_tuple(output, found);
}

}  // namespace

void register_packing(py::module_& m) {
  using namespace py::literals;

  m.def("transcode", &transcode, "jpeg"_a, "segments"_a = std::vector<std::pair<int, py::bytes>>(),
        "max_pixels"_a = kMaxPixels, "max_scans"_a = 256, "check_only"_a = false, "tile"_a = 0,
        "coefficients"_a = false);
}

}  // namespace fastpipe
