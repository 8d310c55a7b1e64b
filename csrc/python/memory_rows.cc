// Pictures in memory -> rows of a batch, for Python.
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/memory_rows.h"
#include "python/gil.h"
#include "python/register.h"
#include "python/values.h"

namespace fastpipe {
namespace {

// Keeps its memory; Note [thread-local data].
RowScratch& this_threads_scratch() {
  thread_local const auto scratch = std::make_unique<RowScratch>();
  return *scratch;
}

py::list fill(const std::vector<py::bytes>& pictures, const py::array_t<RowTask, py::array::c_style>& tasks,
              py::array images, bool exact, int threads, bool planar, const py::kwargs& rendering) {
  if (tasks.ndim() != 1 || static_cast<std::size_t>(tasks.size()) != pictures.size()) {
    throw py::value_error("tasks: expected one for each picture");
  }
  RowOptions options = {exact, false};
  const int height = planar ? 2 : 1;  // its axis
  if (!planar) {
    options.form = form_of("images", images, 4);
  } else if (!py::isinstance<Pixels>(images) || images.ndim() != 4 || images.shape(1) != 3 || images.shape(2) < 1 ||
             images.shape(3) < 1 || (images.flags() & py::array::c_style) == 0) {
    throw py::value_error("images: expected a C-contiguous uint8 array (rows, 3, height, width)");
  }
  if (threads < 1) throw py::value_error("threads must be at least 1");
  std::vector<RowTask> list(tasks.data(), tasks.data() + tasks.size());
  std::vector<const std::uint8_t*> starts;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Bytes bytes(pictures[i]);
    if (bytes.size != list[i].size) throw py::value_error("tasks: size differs from the picture's");
    check_place(list[i], images);
    starts.push_back(bytes.data);
  }
  const Size size = {static_cast<int>(images.shape(height + 1)), static_cast<int>(images.shape(height))};
  const BatchSpan out = {static_cast<std::uint8_t*>(images.mutable_data()), size, planar};  // throws if not writable
  render_as(rendering, &options);
  for (const RowTask& task : list) check_patches(task, options);
  RowScratch& scratch = this_threads_scratch();
  std::vector<RowError> failed;
  // `pictures`, whose references are its own, and `images` are held by this call.
  without_gil([&] { failed = fill_rows(starts, list, options, out, threads, &scratch); });
  py::list errors;
  for (const RowError& each : failed) errors.append(py::make_tuple(each.row, reason_of(each.status)));
  return errors;
}

}  // namespace

void register_memory_rows(py::module_& m) {
  using namespace py::literals;

  m.def("fill_rows", &fill, "pictures"_a, "tasks"_a, "images"_a.noconvert(), "exact"_a, "threads"_a = 1,
        "planar"_a = false);
}

}  // namespace fastpipe
