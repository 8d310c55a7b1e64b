// The engine as Python sees it: checks what comes in, lets the GIL go while C++ works, calls one core function.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#ifdef __linux__
#include <sys/syscall.h>
#else
#include <pthread.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine.h"
#include "file.h"
#include "jpeg.h"
#include "jpeg_errors.h"
#include "picture.h"
#include "resize.h"
#include "transcode.h"
#include "xxh3.h"

namespace py = pybind11;

namespace fastpipe {
namespace {

using Pixels = py::array_t<std::uint8_t>;

std::string words_of(const Status& status) {
  std::string text = words(status.code);
  if (status.detail[0] != '\0') text.append(": ").append(status.detail);
  return text;
}

void raise_if(const Status& status) {
  if (!status.ok()) throw py::value_error(words_of(status));
}

// Note [thread-local data]
// A thread's first call from Python makes room for all thread-local data of this extension, since pybind11 has some,
// and glibc ends the process where there is no memory for that. So what is large is a pointer, and made when it is
// needed.

// Note [the end of the program]
// When the interpreter is being finalized, taking the GIL back ends a daemon thread by unwinding its stack, which must
// not meet a destructor or anything else that is noexcept. So the GIL is let go of by plain calls; and destructors keep
// it once the engine is stopping, which it is by then: no worker needs the GIL, so the wait is short and cannot
// deadlock. An engine that dies unclosed lets the GIL go in the main thread alone, which is never ended so.
bool in_main_thread() {
#ifdef __linux__
  return ::syscall(SYS_gettid) == ::getpid();
#else
  return ::pthread_main_np() != 0;
#endif
}

template <typename Work>
void without_gil(Work work) {
  PyThreadState* const state = PyEval_SaveThread();
  work();
  PyEval_RestoreThread(state);
}

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
  PyEngine(const std::vector<std::pair<std::string, std::uint64_t>>& shards, int threads, std::size_t max_open_files) {
    if (threads < 1) throw py::value_error("threads must be at least 1");
    std::vector<Shard> list;
    list.reserve(shards.size());
    for (const auto& [path, size] : shards) list.push_back({path, size});
    engine_ = std::make_unique<Engine>(std::move(list), threads, max_open_files);
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
  void give_up() { given_up_ = true; }
  double patience_of(double seconds) const { return given_up_ ? std::min(seconds, kLeastPatience) : seconds; }

  Engine& core() const {
    if (foreign()) throw py::value_error("the engine belongs to another process");
    return *engine_;
  }

 private:
  std::unique_ptr<Engine> engine_;
  bool given_up_ = false;
  const pid_t process_ = ::getpid();
};

// A job and what it writes to: the arrays live until no thread writes to them any more.
class PyJob {
 public:
  PyJob(std::shared_ptr<PyEngine> engine, const py::array_t<RowTask, py::array::c_style>& tasks, Pixels images,
        bool exact, bool verify)
      : engine_(std::move(engine)), images_(std::move(images)) {
    if (tasks.ndim() != 1) throw py::value_error("tasks: expected one dimension");
    if (images_.ndim() != 4 || images_.shape(3) != 3 || (images_.flags() & py::array::c_style) == 0) {
      throw py::value_error("images: expected a C-contiguous uint8 array (rows, height, width, 3)");
    }
    const Size out = {static_cast<int>(images_.shape(2)), static_cast<int>(images_.shape(1))};
    if (out.width < 1 || out.height < 1) throw py::value_error("images: height and width must be at least 1");
    std::vector<RowTask> list(tasks.data(), tasks.data() + tasks.size());
    for (const RowTask& task : list) {
      if (task.out_row >= images_.shape(0)) throw py::value_error("tasks: out_row lies beyond the images");
    }
    job_ = std::make_shared<Job>(std::move(list), images_.mutable_data(), out,  // throws if not writable
                                 RowOptions{exact, verify});
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
    if (engine_->foreign() || given_up_) return;  // Note [fork]
    Engine& engine = engine_->core();
    if (engine.wait(*job_, std::chrono::milliseconds(0))) return;
    const auto patience = milliseconds_of(engine_->patience_of(patience_s));
    bool ended = false;
    without_gil_unless_stopping(engine, [&] { ended = engine.cancel(*job_, patience); });
    if (ended) return;
    engine_->give_up();
    given_up_ = true;
    images_.inc_ref();  // Note [a row that does not end]
  }

  py::list errors() const {
    py::list list;
    for (const RowError& failed : engine_->core().errors(*job_)) {
      list.append(py::make_tuple(failed.row, words_of(failed.status)));
    }
    return list;
  }

 private:
  std::shared_ptr<PyEngine> engine_;
  Pixels images_;
  bool given_up_ = false;
  std::shared_ptr<Job> job_;
};

PixelSpan span_of(Pixels& image) {
  const Size size = {static_cast<int>(image.shape(1)), static_cast<int>(image.shape(0))};
  return {image.mutable_data(), size, static_cast<std::ptrdiff_t>(size.width) * 3};
}

Pixels new_image(int height, int width) { return Pixels({height, width, 3}); }

struct Bytes {
  const std::uint8_t* data;
  std::size_t size;

  explicit Bytes(const py::bytes& bytes) {
    char* start = nullptr;
    Py_ssize_t length = 0;
    if (PyBytes_AsStringAndSize(bytes.ptr(), &start, &length) != 0) throw py::error_already_set();
    data = reinterpret_cast<const std::uint8_t*>(start);
    size = static_cast<std::size_t>(length);
  }
};

std::uint64_t hash(const py::bytes& data, bool scalar) {
  const Bytes bytes(data);
  return scalar ? xxh3_64_scalar(bytes.data, bytes.size) : xxh3_64(bytes.data, bytes.size);
}

py::tuple jpeg_size(const py::bytes& jpeg, std::int64_t max_pixels) {
  const Bytes bytes(jpeg);
  JpegDecoder decoder;
  raise_if(decoder.open(bytes.data, bytes.size, max_pixels));
  return py::make_tuple(decoder.size().width, decoder.size().height);
}

// An open shard. It holds a descriptor and nothing that changes, so any thread may read from it, also of a forked
// child.
class PyShard {
 public:
  PyShard(std::string path, std::uint64_t size_bytes) {
    const Shard shard = {std::move(path), size_bytes};
    Status status;
    without_gil([&] { status = open(shard); });
    raise_if(status);
  }

  // Fills `image` (height, width, 3) with the whole picture of that size.
  void read_picture(std::uint64_t offset, std::uint32_t size, Pixels image) const {
    if (image.ndim() != 3 || image.shape(0) < 1 || image.shape(1) < 1 || image.shape(2) != 3 ||
        (image.flags() & py::array::c_style) == 0) {
      throw py::value_error("image: expected a C-contiguous uint8 array (height, width, 3)");
    }
    const PixelSpan span = span_of(image);  // throws if not writable
    // Keeps its memory; Note [thread-local data].
    thread_local const auto reader = std::make_unique<PictureReader>();
    Status status;
    without_gil([&] { status = reader->run(*file_, offset, size, span); });
    raise_if(status);
  }

 private:
  Status open(const Shard& shard) noexcept {
    try {
      return open_shard(shard, false, &file_);
    } catch (const std::exception& problem) {
      return error(Code::internal, "%s", problem.what());
    }
  }

  std::shared_ptr<const File> file_;
};

// Those of this machine.
std::vector<std::string> decode_methods() {
  if (!StripDecoder::available()) return {"libjpeg"};
  return {"strips", "libjpeg"};
}

DecodeMethod method_named(const std::string& name) {
  if (name.empty()) return DecodeMethod::best;
  const std::vector<std::string> known = decode_methods();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    throw py::value_error("this machine has no way of decoding named " + name);
  }
  return name == "strips" ? DecodeMethod::strips : DecodeMethod::libjpeg;
}

Pixels decode(const py::bytes& jpeg, const std::optional<std::array<int, 4>>& region, int denominator,
              std::int64_t max_pixels, const std::string& method) {
  const DecodeMethod by = method_named(method);
  if (denominator != 1 && denominator != 2 && denominator != 4 && denominator != 8) {
    throw py::value_error("denominator: expected 1, 2, 4 or 8");
  }
  const Bytes bytes(jpeg);
  JpegDecoder decoder;
  raise_if(decoder.open(bytes.data, bytes.size, max_pixels));
  const Size whole = decoder.scaled_size(denominator);
  Rect rect = {0, 0, whole.width, whole.height};
  if (region) rect = {(*region)[0], (*region)[1], (*region)[2], (*region)[3]};
  if (!rect.inside(whole)) throw py::value_error(words(Code::bad_crop));
  Pixels image = new_image(rect.height, rect.width);
  const PixelSpan span = span_of(image);
  Status status;
  {
    const py::gil_scoped_release release;  // `jpeg` and `image` are held by this call
    status = decoder.decode(denominator, rect, rgb_rows(&span), by);
  }
  raise_if(status);
  return image;
}

const ResizeKernels* kernels_named(const std::string& name) {
  for (const ResizeKernels* kernels : all_kernels()) {
    if (name == kernels->name) return kernels;
  }
  throw py::value_error("this machine has no resize kernels named " + name);
}

Pixels resize(const py::array_t<std::uint8_t, py::array::c_style | py::array::forcecast>& image, int height, int width,
              const std::optional<std::array<double, 4>>& box, const std::optional<std::array<int, 4>>& bounds,
              bool flip, const std::string& kernels, int rows_at_once) {
  if (image.ndim() != 3 || image.shape(2) != 3) throw py::value_error("image: expected (height, width, 3)");
  if (height < 1 || width < 1) throw py::value_error("height and width must be at least 1");
  if (rows_at_once < 1) throw py::value_error("rows_at_once must be at least 1");
  const Size size = {static_cast<int>(image.shape(1)), static_cast<int>(image.shape(0))};
  Rect within = {0, 0, size.width, size.height};
  if (bounds) within = {(*bounds)[0], (*bounds)[1], (*bounds)[2], (*bounds)[3]};
  Box what = {double(within.x), double(within.y), double(within.width), double(within.height)};
  if (box) what = {(*box)[0], (*box)[1], (*box)[2], (*box)[3]};
  if (!within.inside(size) || !inside(what, within)) throw py::value_error(words(Code::bad_crop));
  Resizer resizer(kernels.empty() ? best_kernels() : kernels_named(kernels));
  const Rect region = resizer.plan(what, within, {width, height}, flip);
  const std::ptrdiff_t stride = static_cast<std::ptrdiff_t>(region.width) * 4;
  rows_at_once = std::min(rows_at_once, region.height);
  std::vector<std::uint8_t> rows(static_cast<std::size_t>(stride * rows_at_once + kReadBeyond));
  for (int y = 0; y < region.height; y += rows_at_once) {
    const int count = std::min(rows_at_once, region.height - y);
    std::uint8_t* to = rows.data();
    for (int i = 0; i < count; ++i) {
      for (int x = 0; x < region.width; ++x, to += 4) {
        for (int c = 0; c < 3; ++c) to[c] = image.at(region.y + y + i, region.x + x, c);
      }
    }
    resizer.take(y, count, rows.data(), stride);
  }
  Pixels out = new_image(height, width);
  resizer.finish(span_of(out));
  return out;
}

py::tuple transcode(const py::bytes& jpeg, const std::vector<std::pair<int, py::bytes>>& segments,
                    std::int64_t max_pixels, int max_scans, bool check_only, int tile) {
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
  {
    const py::gil_scoped_release release;  // `jpeg` and `segments` are held by this call
    status = transcoder->run(bytes.data, bytes.size, list, options, &info);
  }
  raise_if(status);
  py::object output = py::none();
  if (transcoder->output_size() > 0) {
    output = py::bytes(reinterpret_cast<const char*>(transcoder->output()), transcoder->output_size());
  }
  py::dict found;
  found["width"] = info.width;
  found["height"] = info.height;
  found["components"] = info.components;
  found["precision"] = info.precision;
  found["progressive"] = info.progressive;
  found["arithmetic"] = info.arithmetic;
  found["stray_bytes"] = info.stray_bytes;
  found["exact"] = info.exact;
  return py::make_tuple(output, found);
}

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
  dict["batches_making"] = found.jobs_unfinished;
  dict["batches_ready"] = found.jobs_finished;
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
}  // namespace fastpipe

PYBIND11_MODULE(_engine, m) {
  using namespace fastpipe;
  using namespace py::literals;

  PYBIND11_NUMPY_DTYPE(RowTask, box, offset, xxh3_64, bounds, size, shard, out_row, width, height, flip);
  PYBIND11_NUMPY_DTYPE(ByteRange, offset, size, shard);
  m.doc() = "The native engine; fastpipe.engine, fastpipe.pictures, fastpipe.rows and fastpipe.pack are its users.";
  // What is found out about the machine once is found out now: a fork while another thread does would leave the child
  // waiting for it.
  best_kernels();
  StripDecoder::available();
  m.attr("TASK_DTYPE") = py::dtype::of<RowTask>();
  m.attr("RANGE_DTYPE") = py::dtype::of<ByteRange>();
  m.attr("MAX_PIXELS") = kMaxPixels;
  m.attr("OUT_OF_MEMORY") = words(Code::out_of_memory);
  m.attr("LIBJPEG_TURBO_VERSION") = std::to_string(LIBJPEG_TURBO_VERSION_NUMBER);

  py::class_<PyEngine, std::shared_ptr<PyEngine>>(m, "Engine")
      .def(py::init<const std::vector<std::pair<std::string, std::uint64_t>>&, int, std::size_t>(), "shards"_a,
           "threads"_a, "max_open_files"_a)
      .def("read_ahead", &read_ahead, "ranges"_a, "restart"_a)
      .def("counters", &counters)
      .def("levels", &levels)
      .def("activities", &activities)
      .def("close", &PyEngine::close, "patience_s"_a)
      .def("closed", [](const PyEngine& engine) { return engine.core().stopping(); });

  py::class_<PyJob>(m, "Job")
      .def(py::init<std::shared_ptr<PyEngine>, const py::array_t<RowTask, py::array::c_style>&, Pixels, bool, bool>(),
           "engine"_a, "tasks"_a, "images"_a.noconvert(), "exact"_a, "verify"_a)
      .def("wait", &PyJob::wait, "timeout_s"_a)
      .def("cancel", &PyJob::cancel, "patience_s"_a)
      .def("errors", &PyJob::errors);

  py::class_<Descriptor>(m, "Descriptor").def(py::init<int>(), "number"_a).def("number", &Descriptor::get);

  py::class_<PyShard>(m, "Shard")
      .def(py::init<std::string, std::uint64_t>(), "path"_a, "size_bytes"_a)
      .def("read_picture", &PyShard::read_picture, "offset"_a, "size"_a, "image"_a.noconvert());

  m.def("xxh3_64", &hash, "data"_a, "scalar"_a = false);
  m.def("jpeg_size", &jpeg_size, "jpeg"_a, "max_pixels"_a = kMaxPixels);
  m.def("decode", &decode, "jpeg"_a, "region"_a = py::none(), "denominator"_a = 1, "max_pixels"_a = kMaxPixels,
        "method"_a = "");
  m.def("decode_methods", &decode_methods);
  m.def("resize", &resize, "image"_a, "height"_a, "width"_a, "box"_a = py::none(), "bounds"_a = py::none(),
        "flip"_a = false, "kernels"_a = "", "rows_at_once"_a = 8);
  m.def("resize_kernels", [] {
    std::vector<std::string> names;
    for (const ResizeKernels* kernels : all_kernels()) names.emplace_back(kernels->name);
    return names;
  });
  m.def("transcode", &transcode, "jpeg"_a, "segments"_a = std::vector<std::pair<int, py::bytes>>(),
        "max_pixels"_a = kMaxPixels, "max_scans"_a = 256, "check_only"_a = false, "tile"_a = 0);
}
