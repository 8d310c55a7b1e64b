// Engines, jobs and figures of them, for Python.
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "python/gil.h"
#include "python/register.h"
#include "python/values.h"

namespace fastpipe {
namespace {

// What waits for the engine's threads. Note [the end of the program]
template <typename Work>
void without_gil_unless_stopping(Engine& engine, Work work) {
  if (engine.stopping()) {
    work();
  } else {
    without_gil(work);
  }
}

// Note [a row that does not end]
// A read from a dead network file system may take for ever, and nothing can end it. Whoever waits for a row that a
// thread is at waits some seconds at most. Then the engine, its threads and the memory that they write to are let be:
// never joined, never freed. The system takes them back with the process.
std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * std::clamp(seconds, 0.0, 86400.0)));
}

// What destructors allow; Python's calls say how long themselves.
constexpr double kPatience = 10.0;
// What all do once one has waited in vain: enough for a row that is at work.
constexpr double kLeastPatience = 0.1;

// Note [fork]
// After a fork the child has the engine's memory and none of its threads: its locks may be held for ever, and a join
// would wait for nobody. A child therefore touches nothing of it, and lets it leak.
class PyEngine {
 public:
  PyEngine(const std::vector<std::pair<std::string, std::uint64_t>>& shards, int threads, std::size_t max_open_files,
           const std::vector<std::int64_t>& mtimes_ns, int cpus) {
    if (threads < 1) throw py::value_error("threads must be at least 1");
    if (cpus < 1) throw py::value_error("cpus must be at least 1");
    if (!mtimes_ns.empty() && mtimes_ns.size() != shards.size()) {
      throw py::value_error("mtimes_ns: expected one for each shard, or none");
    }
    std::vector<Shard> list;
    list.reserve(shards.size());
    for (const auto& [path, size] : shards) {
      list.push_back({path, size, mtimes_ns.empty() ? Shard::kAnyTime : mtimes_ns[list.size()]});
    }
    engine_ = std::make_unique<Engine>(std::move(list), threads, cpus, max_open_files);
  }
  ~PyEngine() {
    // Note [the end of the program]; in another thread, the GIL is kept for a row's time, unless `close` came before.
    const bool mine = !foreign();
    const bool closed =
        mine && (in_main_thread() ? close(kPatience) : engine_->close(milliseconds_of(patience_of(kPatience))));
    if (!closed) static_cast<void>(engine_.release());  // Note [fork]; Note [a row that does not end]
  }
  PyEngine(const PyEngine&) = delete;
  PyEngine& operator=(const PyEngine&) = delete;

  bool foreign() const { return ::getpid() != process_; }

  // False if a thread did not come to an end in time.
  bool close(double patience_s) {
    if (foreign()) return true;  // Note [fork]
    const auto patience = milliseconds_of(patience_of(patience_s));
    bool closed = false;
    without_gil_unless_stopping(*engine_, [&] { closed = engine_->close(patience); });
    if (!closed) give_up();
    return closed;
  }

  // Somebody has waited for a row in vain; so will others.
  void give_up() { given_up_.store(true, std::memory_order_relaxed); }
  double patience_of(double seconds) const {
    return given_up_.load(std::memory_order_relaxed) ? std::min(seconds, kLeastPatience) : seconds;
  }

  Engine& core() const {
    if (foreign()) throw py::value_error("the engine belongs to another process");
    return *engine_;
  }

 private:
  std::unique_ptr<Engine> engine_;
  std::atomic<bool> given_up_{false};  // relaxed: it guards no other data
  const pid_t process_ = ::getpid();
};

// A job and what it writes to: the arrays live until no thread writes to them any more.
class PyJob {
 public:
  // `views`: for each crop of a picture, where its rows go, whether it is never decoded at reduced size, and how its
  // pixels are made.
  PyJob(std::shared_ptr<PyEngine> engine, const py::array_t<RowTask, py::array::c_style>& tasks,
        const std::vector<std::tuple<py::array, bool, py::dict>>& views, bool verify)
      : engine_(std::move(engine)) {
    if (tasks.ndim() != 1) throw py::value_error("tasks: expected one dimension");
    const std::size_t count = views.size();
    if (count == 0) throw py::value_error("views: expected one at least");
    std::vector<Slot> slots;
    for (const auto& [array, exact, rendering] : views) {
      images_.push_back(array);
      RowOptions options = {exact, verify};
      fill_as(array, rendering, &options);
      if ((options.id_bytes > 0 || options.copied || options.is_map()) && count > 1) {
        throw py::value_error("views: masks, maps and arrays have one crop");
      }
      slots.push_back(slot_of(images_.back(), options, rendering));
    }
    std::vector<RowTask> list(tasks.data(), tasks.data() + tasks.size());
    if (list.size() % count != 0) throw py::value_error("tasks: expected one for each crop of each picture");
    for (std::size_t i = 0; i < list.size(); ++i) {
      const RowTask &task = list[i], &first = list[i - i % count];
      const py::array& rows = images_[i % count];
      check_place(task, rows);
      check_map(task, slots[i % count].options);
      check_patches(task, slots[i % count].options);
      if (slots[i % count].options.copied && !has_place(task, rows)) {
        throw py::value_error("tasks: an array has no place in its rows");
      }
      if (task.shard != first.shard || task.offset != first.offset || task.size != first.size ||
          task.width != first.width || task.height != first.height) {
        throw py::value_error("tasks: the crops of a picture must be of one picture");
      }
    }
    job_ = std::make_shared<Job>(std::move(list), std::move(slots));
    if (!engine_->core().submit(job_)) throw std::runtime_error("the engine is closed");
  }
  ~PyJob() { cancel(kPatience); }
  PyJob(const PyJob&) = delete;
  PyJob& operator=(const PyJob&) = delete;

  // Wakes ten times a second, so that Python can act on Ctrl-C.
  bool wait(double timeout_s) const {
    using std::chrono::milliseconds;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
    Engine& engine = engine_->core();
    while (true) {
      const auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
      const milliseconds slice = std::max(std::min(left, milliseconds(100)), milliseconds(0));
      bool done = false;
      without_gil([&] { done = engine.wait(*job_, slice); });
      if (done) return true;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (left <= milliseconds(0)) return false;
    }
  }

  // Waits for the rows that have begun. Those that do not end in time keep their memory: it is never given back.
  void cancel(double patience_s) {
    if (engine_->foreign() || given_up_.load(std::memory_order_relaxed)) return;  // Note [fork]
    Engine& engine = engine_->core();
    if (engine.wait(*job_, std::chrono::milliseconds(0))) return;
    const auto patience = milliseconds_of(engine_->patience_of(patience_s));
    bool ended = false;
    without_gil_unless_stopping(engine, [&] { ended = engine.cancel(*job_, patience); });
    if (ended) return;
    engine_->give_up();
    if (given_up_.exchange(true, std::memory_order_relaxed)) return;  // another thread has waited in vain, too
    for (const py::array& each : images_) each.inc_ref();             // Note [a row that does not end]
  }

  py::list errors() const {
    py::list list;
    for (const RowError& failed : engine_->core().errors(*job_)) {
      list.append(py::make_tuple(failed.row, reason_of(failed.status)));
    }
    return list;
  }

 private:
  // Whether the bytes of an array end where the rows do, or before. An array without bytes has no task.
  static bool has_place(const RowTask& task, const py::array& rows) {
    const py::ssize_t place = (rows.shape(0) - static_cast<py::ssize_t>(task.out_row)) * rows.shape(1);
    return task.skip < task.size && static_cast<py::ssize_t>(task.size - task.skip) <= place;
  }

  static Slot slot_of(py::array& images, RowOptions options, const py::dict& rendering) {
    Size size = {static_cast<int>(images.shape(1)), 1};
    if (!options.copied) size = {static_cast<int>(images.shape(2)), static_cast<int>(images.shape(1))};
    if (size.width < 1 || size.height < 1) throw py::value_error("images: height and width must be at least 1");
    render_as(rendering, &options);
    return {static_cast<std::uint8_t*>(images.mutable_data()), size, options};  // throws if not writable
  }

  std::shared_ptr<PyEngine> engine_;
  std::vector<py::array> images_;
  std::atomic<bool> given_up_{false};  // relaxed: it guards no other data
  std::shared_ptr<Job> job_;
};

void read_ahead(const PyEngine& engine, const py::array_t<ByteRange, py::array::c_style>& ranges, bool restart) {
  if (ranges.ndim() != 1) throw py::value_error("ranges: expected one dimension");
  engine.core().read_ahead({ranges.data(), ranges.data() + ranges.size()}, restart);
}

const char* word_of(Stage stage) {
  switch (stage) {
    case Stage::opening:
      return "opening";
    case Stage::reading:
      return "reading";
    case Stage::decoding:
      return "decoding";
    case Stage::resizing:
      return "resizing";
    case Stage::idle:
      break;
  }
  return "idle";
}

py::list activities(const PyEngine& engine) {
  py::list found;
  for (const Activity& each : engine.core().activities()) {
    found.append(
        py::make_tuple(word_of(each.stage), each.shard, each.offset, static_cast<double>(each.since_ns) / 1e9));
  }
  return found;
}

py::dict levels(const PyEngine& engine) {
  const Levels found = engine.core().levels();
  py::dict dict;
  dict["threads"] = found.threads;
  dict["threads_busy"] = found.threads_busy;
  dict["rows_waiting"] = found.rows_waiting;
  dict["hints_waiting"] = found.hints_waiting;
  return dict;
}

py::dict counters(const PyEngine& engine) {
  const RowCounters sums = engine.core().counters();
  py::dict dict;
  dict["shards_opened"] = sums.opened;
  dict["images_read"] = sums.read;
  dict["bytes_read"] = sums.bytes;
  dict["images_decoded"] = sums.rows;
  dict["images_failed"] = sums.failed;
  dict["read_s"] = 1e-9 * static_cast<double>(sums.read_ns);
  dict["decode_s"] = 1e-9 * static_cast<double>(sums.decode_ns);
  dict["resize_s"] = 1e-9 * static_cast<double>(sums.resize_ns);
  return dict;
}

}  // namespace

void register_engine(py::module_& m) {
  using namespace py::literals;

  PYBIND11_NUMPY_DTYPE(RowTask, box, offset, xxh3_64, bounds, size, shard, out_row, skip, width, height, out_width,
                       out_height, flip, coefficients);
  PYBIND11_NUMPY_DTYPE(ByteRange, offset, size, shard);
  m.attr("TASK_DTYPE") = py::dtype::of<RowTask>();
  m.attr("RANGE_DTYPE") = py::dtype::of<ByteRange>();

  py::class_<PyEngine, std::shared_ptr<PyEngine>>(m, "Engine")
      .def(py::init<const std::vector<std::pair<std::string, std::uint64_t>>&, int, std::size_t,
                    const std::vector<std::int64_t>&, int>(),
           "shards"_a, "threads"_a, "max_open_files"_a, "mtimes_ns"_a = std::vector<std::int64_t>(),
           "cpus"_a = std::numeric_limits<int>::max())
      .def("read_ahead", &read_ahead, "ranges"_a, "restart"_a)
      .def("counters", &counters)
      .def("levels", &levels)
      .def("activities", &activities)
      .def("close", &PyEngine::close, "patience_s"_a)
      .def("closed", [](const PyEngine& engine) { return engine.core().stopping(); });

  py::class_<PyJob>(m, "Job")
      .def(py::init<std::shared_ptr<PyEngine>, const py::array_t<RowTask, py::array::c_style>&,
                    const std::vector<std::tuple<py::array, bool, py::dict>>&, bool>(),
           "engine"_a, "tasks"_a, "views"_a, "verify"_a)
      .def("wait", &PyJob::wait, "timeout_s"_a)
      .def("cancel", &PyJob::cancel, "patience_s"_a)
      .def("errors", &PyJob::errors);
}

}  // namespace fastpipe
