#include "engine/row.h"

#include <algorithm>
#include <memory>

#include "base/clock.h"
#include "png/png_rows.h"

namespace fastpipe {
namespace {

// libjpeg-turbo's reduced decodes at 1/2, 1/4 and 1/8 have SIMD code and save most of the work; those between have not.
// One is used only where the output is still no larger than the reduced crop, in both directions.
int denominator(const Box& box, Size out) {
  int best = 1;
  while (best < 8 && box.width >= 2.0 * best * out.width && box.height >= 2.0 * best * out.height) best *= 2;
  return best;
}

Rect scale_down(const Rect& bounds, int by) {
  const int right = ceil_div(bounds.x + bounds.width, by);
  const int bottom = ceil_div(bounds.y + bounds.height, by);
  return {bounds.x / by, bounds.y / by, right - bounds.x / by, bottom - bounds.y / by};
}

// The resizer as a sink of decoded rows, with its time kept apart.
struct TimedSink {
  Resizer* resizer;
  std::uint64_t ns = 0;

  static void take(void* context, int y, int count, const std::uint8_t* rgbx, std::ptrdiff_t stride) {
    auto* self = static_cast<TimedSink*>(context);
    const std::uint64_t start = now_ns();
    self->resizer->take(y, count, rgbx, stride);
    self->ns += now_ns() - start;
  }
};

Box box_of(const RowTask& task) { return {task.box[0], task.box[1], task.box[2], task.box[3]}; }

Rect bounds_of(const RowTask& task) { return {task.bounds[0], task.bounds[1], task.bounds[2], task.bounds[3]}; }

Status bad_crop(const RowTask& task) {
  const Box box = box_of(task);
  const Rect bounds = bounds_of(task);
  return error(Code::bad_crop, "box %g, %g, %g x %g, bounds %d, %d, %d x %d of %d x %d", box.x, box.y, box.width,
               box.height, bounds.x, bounds.y, bounds.width, bounds.height, task.width, task.height);
}

// A padded crop may reach beyond its picture; Padder and NearestResizer say whether it is possible.
Status check_crop(const RowTask& task, PaddingMode mode) {
  const Box box = box_of(task);
  const Rect bounds = bounds_of(task);
  if (!bounds.inside({task.width, task.height})) return bad_crop(task);  // first: sums of others may overflow
  const bool possible = mode == PaddingMode::none ? inside(box, bounds) : box.width > 0 && box.height > 0;
  return possible ? Status{} : bad_crop(task);
}

}  // namespace

void RowCounters::add(const RowCounters& other) {
  opened += other.opened;
  read += other.read;
  bytes += other.bytes;
  rows += other.rows;
  failed += other.failed;
  read_ns += other.read_ns;
  decode_ns += other.decode_ns;
  resize_ns += other.resize_ns;
}

// However a row ends, what one giant picture needed is given back.
struct RowWorker::GiveBack {
  RowWorker* worker;
  StageFlag* stage;
  ~GiveBack() {
    stage->set(Stage::idle);
    worker->stored_.give_back();
    worker->decoder_.give_back();
    worker->mask_.give_back();
    worker->resizer_.give_back();
    worker->padder_.give_back();
  }
};

Status RowWorker::run(const RowTask& task, RowOptions options, PixelSpan out, RowCounters* counters, StageFlag* stage) {
  const GiveBack at_the_end{this, stage};
  return fill(task, options, out, counters, stage);
}

Status RowWorker::run(const std::uint8_t* jpeg, const RowTask& task, RowOptions options, PixelSpan out) {
  RowCounters counters;
  StageFlag stage;
  const GiveBack at_the_end{this, &stage};
  stored_.borrow(jpeg, task.size);
  return fill_picture(task, nullptr, options, out, &counters, &stage);
}

Status RowWorker::run(const File& file, const RowTask& task, RowOptions options, PixelSpan out) {
  RowCounters counters;
  StageFlag stage;
  const GiveBack at_the_end{this, &stage};
  return fill(file, task, options, out, &counters, &stage);
}

Status RowWorker::fill(const RowTask& task, RowOptions options, PixelSpan out, RowCounters* counters,
                       StageFlag* stage) {
  stage->set(Stage::opening);
  const std::uint64_t started = now_ns();
  std::shared_ptr<const File> file;
  const Status status = files_->get(task.shard, &file);
  if (!status.ok()) return status;
  counters->read_ns = now_ns() - started;
  return fill(*file, task, options, out, counters, stage);
}

Status RowWorker::fill(const File& file, const RowTask& task, RowOptions options, PixelSpan out, RowCounters* counters,
                       StageFlag* stage) {
  const std::uint64_t started = now_ns();
  stage->set(Stage::reading);
  const bool in_parts = task.coefficients != 0 && !options.verify;
  Status status =
      in_parts ? stored_.read_head(file, task.offset, task.size) : stored_.read(file, task.offset, task.size);
  if (!status.ok()) return status;
  if (options.verify) {
    status = stored_.check(task.xxh3_64);
    if (!status.ok()) return status;
  }

  counters->read = options.kind == RowKind::rgb;
  counters->bytes = stored_.bytes_read();
  counters->read_ns += now_ns() - started;
  stage->set(Stage::decoding);
  if (options.kind == RowKind::rgb) {
    return fill_picture(task, in_parts ? &file : nullptr, options, out, counters, stage);
  }
  return fill_mask(task, options.padding, {out.data, out.size, pixel_bytes(options.kind)}, counters);
}

Status RowWorker::fill_picture(const RowTask& task, const File* file, RowOptions options, PixelSpan out,
                               RowCounters* counters, StageFlag* stage) {
  std::uint64_t read = now_ns();
  const Size size = {task.width, task.height};
  Status status = task.png != 0 ? stored_.open(size, mask_.png()) : stored_.open(size, &decoder_);
  if (status.ok()) status = check_crop(task, options.padding.mode);
  if (!status.ok()) return status;
  Box box = box_of(task);
  PixelSpan resized = out;
  const bool padded = options.padding.mode != PaddingMode::none;
  if (padded) {
    if (!padder_.plan(box, bounds_of(task), out.size, options.padding)) return bad_crop(task);
    if (padder_.empty()) {
      padder_.spread(out, false);
      counters->rows = 1;
      return status;
    }
    box = padder_.box();
    resized = padder_.room();
  }
  const bool reducible = !options.exact && !padded && task.png == 0 && options.resampling.averages();
  const int by = reducible ? denominator(box, out.size) : 1;
  box = {box.x / by, box.y / by, box.width / by, box.height / by};
  const bool flip = task.flip != 0 && !padded;
  const Rect region = resizer_.plan(box, scale_down(bounds_of(task), by), resized.size, flip, options.resampling);

  if (file != nullptr) {
    stage->set(Stage::reading);
    const std::uint64_t started = now_ns();
    status = stored_.read_more(*file, task.offset, decoder_.needed(by, region));
    if (!status.ok()) return status;
    counters->bytes = stored_.bytes_read();
    const std::uint64_t spent = now_ns() - started;
    counters->read_ns += spent;
    read += spent;
    stage->set(Stage::decoding);
  }

  TimedSink sink{&resizer_};
  if (task.png != 0) {
    status = mask_.png()->decode(region.y, region.height);
    if (status.ok()) status = png_rgbx(*mask_.png(), region, {&sink, TimedSink::take}, &room_);
  } else {
    status = decoder_.decode(by, region, {&sink, TimedSink::take});
  }
  if (!status.ok()) return status;
  const std::uint64_t decoded = now_ns();
  stage->set(Stage::resizing);
  resizer_.finish(resized);
  if (padded) padder_.spread(out, task.flip != 0);
  const std::uint64_t finished = now_ns();

  counters->rows = 1;
  counters->decode_ns = decoded - read - sink.ns;
  counters->resize_ns = finished - decoded + sink.ns;
  return status;
}

Status RowWorker::fill_mask(const RowTask& task, Padding padding, IdSpan out, RowCounters* counters) {
  const std::uint64_t read = now_ns();
  Status status = stored_.open({task.width, task.height}, mask_.png());
  if (status.ok()) status = check_crop(task, padding.mode);
  if (status.ok()) status = mask_.fill(box_of(task), bounds_of(task), task.flip != 0, padding, out);
  counters->decode_ns = now_ns() - read;
  return status;
}

}  // namespace fastpipe
