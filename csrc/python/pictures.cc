// Shards, hashes, and single pictures in whole or in part, for Python.
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/row_sink.h"
#include "base/xxh3.h"
#include "engine/picture.h"
#include "engine/picture_decoder.h"
#include "engine/row.h"
#include "io/file.h"
#include "python/gil.h"
#include "python/register.h"
#include "python/values.h"

namespace fastpipe {
namespace {

std::uint64_t hash(const py::bytes& data, bool scalar) {
  const Bytes bytes(data);
  return scalar ? xxh3_64_everywhere(bytes.data, bytes.size) : xxh3_64(bytes.data, bytes.size);
}

py::tuple picture_size(const py::bytes& picture, std::int64_t max_pixels) {
  const Bytes bytes(picture);
  PictureDecoder decoder;
  raise_if(decoder.open(bytes.data, bytes.size, max_pixels));
  return py::make_tuple(decoder.size().width, decoder.size().height);
}

// An open shard. It holds a descriptor and nothing that changes, so any thread may read from it, also of a forked
// child.
class PyShard {
 public:
  PyShard(std::string path, std::uint64_t size_bytes, std::int64_t mtime_ns) {
    const Shard shard = {std::move(path), size_bytes, mtime_ns};
    Status status;
    without_gil([&] { status = open(shard); });
    raise_if(status);
  }

  // Fills `image` (height, width, channels) with the whole picture of that size.
  void read_picture(std::uint64_t offset, std::uint32_t size, py::array image) const {
    const PixelForm form = form_of("image", image, 3);
    const PixelSpan span = span_of(image);  // throws if not writable
    Status status;
    PictureReader& reader = this_threads_reader();
    without_gil([&] { status = reader.run(*file_, offset, size, span, form); });
    raise_if(status);
  }

  // The same for a mask: uint8 or int32 (height, width).
  void read_mask(std::uint64_t offset, std::uint32_t size, py::array mask) const {
    const bool wide = py::isinstance<py::array_t<std::int32_t>>(mask);
    if ((!wide && !py::isinstance<Pixels>(mask)) || mask.ndim() != 2 || mask.size() == 0 ||
        (mask.flags() & py::array::c_style) == 0) {
      throw py::value_error("mask: expected a C-contiguous array (height, width) of uint8 or int32");
    }
    const Size shape = {static_cast<int>(mask.shape(1)), static_cast<int>(mask.shape(0))};
    const IdSpan span = {mask.mutable_data(), shape, wide ? 4 : 1};  // throws if not writable
    Status status;
    PictureReader& reader = this_threads_reader();
    without_gil([&] { status = reader.run(*file_, offset, size, span); });
    raise_if(status);
  }

  // Fills `out`, (bytes,), with the bytes from `offset` on.
  void read_bytes(std::uint64_t offset, Pixels out) const {
    std::uint8_t* const data = out.mutable_data();  // throws if not writable
    const auto size = static_cast<std::size_t>(out.size());
    Status status = file_->check(offset, size);
    if (status.ok()) without_gil([&] { status = file_->read(offset, data, size); });
    raise_if(status);
  }

  // Fills the rows of `images` as an engine's job does, one after the other.
  void fill_rows(const py::array_t<RowTask, py::array::c_style>& tasks, py::array images, bool exact,
                 const py::kwargs& rendering) const {
    if (tasks.ndim() != 1) throw py::value_error("tasks: expected one dimension");
    if (images.ndim() < 3) throw py::value_error("images: expected pictures or masks");
    const Size out = {static_cast<int>(images.shape(2)), static_cast<int>(images.shape(1))};
    if (out.width < 1 || out.height < 1) throw py::value_error("images: height and width must be at least 1");
    RowOptions options = {exact, false};
    fill_as(images, rendering, &options);
    render_as(rendering, &options);
    auto* const rows = static_cast<std::uint8_t*>(images.mutable_data());  // throws if not writable
    RowWorker& worker = this_threads_worker();
    Status status;
    for (py::ssize_t i = 0; i < tasks.size() && status.ok(); ++i) {
      const RowTask task = tasks.data()[i];
      check_place(task, images);
      check_map(task, options);
      check_patches(task, options);
      const PixelSpan row = row_of(rows, out, options.pixel_bytes(), task);
      without_gil([&] { status = filled(&worker, task, options, row); });
    }
    raise_if(status);
  }

 private:
  // Keeps its memory; Note [thread-local data].
  static RowWorker& this_threads_worker() {
    thread_local const auto worker = std::make_unique<RowWorker>(nullptr);
    return *worker;
  }

  Status filled(RowWorker* worker, const RowTask& task, RowOptions options, PixelSpan row) const noexcept {
    try {
      return worker->run(*file_, task, options, row);
    } catch (const std::bad_alloc&) {
      return error(Code::out_of_memory, "for an image of %u x %u", task.width, task.height);
    } catch (const std::exception& problem) {
      return error(Code::internal, "%s", problem.what());
    }
  }

  static PictureReader& this_threads_reader() {
    thread_local const auto reader = std::make_unique<PictureReader>();
    return *reader;
  }

  Status open(const Shard& shard) noexcept {
    try {
      return open_shard(shard, nullptr, &file_);
    } catch (const std::exception& problem) {
      return error(Code::internal, "%s", problem.what());
    }
  }

  std::shared_ptr<const File> file_;
};

// Those of this machine.
std::vector<std::string> decode_methods() {
  if (!BaselineDecoder::available()) return {"libjpeg"};
  return {"baseline", "libjpeg"};
}

DecodeMethod method_named(const std::string& name) {
  if (name.empty()) return DecodeMethod::best;
  const std::vector<std::string> known = decode_methods();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    throw py::value_error("this machine has no way of decoding named " + name);
  }
  return name == "baseline" ? DecodeMethod::baseline : DecodeMethod::libjpeg;
}

py::array decode(const py::bytes& picture, const std::optional<std::array<int, 4>>& region, int denominator,
                 std::int64_t max_pixels, const std::string& method, const std::string& kernels, int channels,
                 int bits) {
  const PixelForm form = {channels, bits};
  if ((channels != 1 && channels != 3 && channels != 4) || (bits != 8 && bits != 16)) {
    throw py::value_error("expected 1, 3 or 4 channels, of 8 or 16 bits");
  }
  const BlockKernels& blocks = block_kernels_named(kernels);
  const DecodeMethod by = method_named(method);
  if (denominator != 1 && denominator != 2 && denominator != 4 && denominator != 8) {
    throw py::value_error("denominator: expected 1, 2, 4 or 8");
  }
  const Bytes bytes(picture);
  PictureDecoder decoder;
  raise_if(decoder.open(bytes.data, bytes.size, max_pixels));
  if (denominator != 1 && !decoder.has_scales()) throw py::value_error("denominator: expected 1 for a PNG");
  const Size whole = decoder.scaled_size(denominator);
  Rect rect = {0, 0, whole.width, whole.height};
  if (region) rect = {(*region)[0], (*region)[1], (*region)[2], (*region)[3]};
  if (!rect.inside(whole)) throw py::value_error(words(Code::bad_crop));
  py::array image = new_image(rect.height, rect.width, form);
  const PixelSpan span = span_of(image);
  Status status;
  // `picture` and `image` are held by this call.
  without_gil([&] { status = decoder.decode(denominator, rect, rows_into(&span, form), by, blocks); });
  raise_if(status);
  return image;
}

void check_picture(const py::bytes& picture, std::int64_t max_pixels) {
  const Bytes bytes(picture);
  PictureDecoder decoder;
  raise_if(decoder.open(bytes.data, bytes.size, max_pixels));
  const Rect all = {0, 0, decoder.size().width, decoder.size().height};
  Status status;
  // `picture` is held by this call.
  without_gil([&] {
    status = decoder.is_tiled() ? decoder.check_tiles() : decoder.decode(1, all, {nullptr, forget_rows, PixelForm()});
  });
  raise_if(status);
}

}  // namespace

void register_pictures(py::module_& m) {
  using namespace py::literals;

  py::class_<Descriptor>(m, "Descriptor").def(py::init<int>(), "number"_a).def("number", &Descriptor::get);

  py::class_<PyShard>(m, "Shard")
      .def(py::init<std::string, std::uint64_t, std::int64_t>(), "path"_a, "size_bytes"_a,
           "mtime_ns"_a = Shard::kAnyTime)
      .def("read_picture", &PyShard::read_picture, "offset"_a, "size"_a, "image"_a.noconvert())
      .def("read_mask", &PyShard::read_mask, "offset"_a, "size"_a, "mask"_a.noconvert())
      .def("fill_rows", &PyShard::fill_rows, "tasks"_a, "images"_a.noconvert(), "exact"_a)
      .def("read_bytes", &PyShard::read_bytes, "offset"_a, "out"_a.noconvert());

  m.def("xxh3_64", &hash, "data"_a, "scalar"_a = false);
  m.def("picture_size", &picture_size, "picture"_a, "max_pixels"_a = kMaxPixels);
  m.def("decode", &decode, "picture"_a, "region"_a = py::none(), "denominator"_a = 1, "max_pixels"_a = kMaxPixels,
        "method"_a = "", "kernels"_a = "", "channels"_a = 3, "bits"_a = 8);
  m.def("check_picture", &check_picture, "picture"_a, "max_pixels"_a = kMaxPixels);
  m.def("decode_methods", &decode_methods);
}

}  // namespace fastpipe
