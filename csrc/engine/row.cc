#include "engine/row.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "base/clock.h"

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

Box box_of(const RowTask& task) { return {task.box[0], task.box[1], task.box[2], task.box[3]}; }

Rect bounds_of(const RowTask& task) { return {task.bounds[0], task.bounds[1], task.bounds[2], task.bounds[3]}; }

Size size_of(const RowTask& task) { return {static_cast<int>(task.width), static_cast<int>(task.height)}; }

Status bad_crop(const RowTask& task) {
  const Box box = box_of(task);
  const Rect bounds = bounds_of(task);
  return error(Code::bad_crop, "box %g, %g, %g x %g, bounds %d, %d, %d x %d of %d x %d", box.x, box.y, box.width,
               box.height, bounds.x, bounds.y, bounds.width, bounds.height, size_of(task).width, size_of(task).height);
}

// A padded crop may reach beyond its picture; Padder and NearestResizer say whether it is possible.
Status check_crop(const RowTask& task, PaddingMode mode) {
  const Box box = box_of(task);
  const Rect bounds = bounds_of(task);
  if (!bounds.inside(size_of(task))) return bad_crop(task);  // first: sums of others may overflow
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

// However a picture ends, what a giant one needed is given back.
struct RowWorker::GiveBack {
  RowWorker* worker;
  StageFlag* stage;
  ~GiveBack() {
    stage->set(Stage::idle);
    worker->stored_.give_back();
    worker->decoder_.give_back();
    worker->mask_.give_back();
    worker->map_.give_back();
    for (Crop& crop : worker->crops_) crop.give_back();
  }
};

void RowWorker::Crop::give_back() {
  resizer.give_back();
  padder.give_back();
  patch_writer.give_back();
}

// Which part of the picture is needed, at which scale: 1, or a smaller one if that is possible. False if the crop is
// not.
bool RowWorker::Crop::plan(const PictureDecoder& decoder) {
  Box box = box_of(*task);
  const bool mirrored = task->flip != 0;
  const int decoded_bytes = decoder.is_png() ? options.form.bytes() : options.form.bytes_decoded();
  copied = copier.plan(box, bounds_of(*task), mirrored, options.padding, out, options.form.bytes(), decoded_bytes);
  if (copied) {
    needed = {1, copier.region()};
    empty = needed.region.height == 0;
    return true;
  }
  empty = false;
  resized = out;
  if (padded()) {
    if (!padder.plan(box, bounds_of(*task), out.size, options.padding, options.form.bytes())) return false;
    empty = padder.empty();
    if (empty) return true;
    box = padder.box();
    resized = padder.room();
  }
  const bool reducible = decoder.has_scales() && !options.exact && !padded() && options.resampling.averages();
  const int by = reducible ? denominator(box, out.size) : 1;
  box = {box.x / by, box.y / by, box.width / by, box.height / by};
  const bool flip = mirrored && !padded();
  const Rect bounds = scale_down(bounds_of(*task), by);
  needed = {by, resizer.plan(box, bounds, resized.size, flip, options.resampling, options.form)};
  return true;
}

void RowWorker::Crop::take(void* context, int y, int count, const std::uint8_t* rows, std::ptrdiff_t stride) {
  auto* self = static_cast<Crop*>(context);
  if (self->copied) return self->copier.take(y, count, rows, stride);
  const std::uint64_t started = now_ns();
  self->resizer.take(y, count, rows, stride);
  self->resize_ns += now_ns() - started;
}

void RowWorker::Crop::finish() {
  if (copied) {
    copier.finish();
  } else {
    if (!empty) resizer.finish(resized);
    if (padded()) padder.spread(out, task->flip != 0 && !empty);
  }
  if (patches != nullptr) patch_writer.write(options.patches, options.form.bytes(), patches);
}

void RowWorker::add_crop(const RowTask& task, RowOptions options, PixelSpan out) {
  if (crop_count_ == crops_.size()) crops_.emplace_back();
  Crop& crop = crops_[crop_count_++];
  crop.task = &task;
  crop.options = options;
  crop.out = out;
  crop.patches = nullptr;
  if (options.patches.side > 0) {
    crop.patches = out.data;
    crop.out = crop.patch_writer.room(out.size, options.pixel_bytes());
  }
}

Status RowWorker::run(const RowTask* tasks, const std::vector<Slot>& slots, RowCounters* counters, StageFlag* stage) {
  const GiveBack at_the_end{this, stage};
  crop_count_ = 0;
  for (std::size_t i = 0; i < slots.size(); ++i) add_crop(tasks[i], slots[i].options, slots[i].row(tasks[i]));
  stage->set(Stage::opening);
  const std::uint64_t started = now_ns();
  std::shared_ptr<const File> file;
  const Status status = files_->get(tasks->shard, &file);
  if (!status.ok()) return status;
  counters->read_ns = now_ns() - started;
  return fill(*file, counters, stage);
}

Status RowWorker::run(const std::uint8_t* picture, const RowTask& task, RowOptions options, PixelSpan out) {
  RowCounters counters;
  StageFlag stage;
  const GiveBack at_the_end{this, &stage};
  crop_count_ = 0;
  add_crop(task, options, out);
  stored_.borrow(picture, task.size);
  return fill_picture(&counters, &stage);
}

Status RowWorker::run(const File& file, const RowTask& task, RowOptions options, PixelSpan out) {
  RowCounters counters;
  StageFlag stage;
  const GiveBack at_the_end{this, &stage};
  crop_count_ = 0;
  add_crop(task, options, out);
  return fill(file, &counters, &stage);
}

Status RowWorker::fill(const File& file, RowCounters* counters, StageFlag* stage) {
  const std::uint64_t started = now_ns();
  stage->set(Stage::reading);
  const RowTask& task = *crops_.front().task;
  const RowOptions& options = crops_.front().options;
  if (options.copied) return copy(file, crops_.front(), counters);
  if (options.is_map()) return fill_map(file, crops_.front(), counters);
  const bool verify = options.verify && task.xxh3_64 != 0;  // 0: what is not packed has no hash
  // Of a KEY.fpc the hash needs all bytes; of a KEY.tif they are read for it and forgotten.
  const bool in_parts = task.coefficients != 0 ? !verify : options.id_bytes == 0 && task.size >= kTiledBytes;
  Status status =
      in_parts ? stored_.read_head(file, task.offset, task.size) : stored_.read(file, task.offset, task.size);
  if (!status.ok()) return status;
  if (verify) {
    status = stored_.check(task.xxh3_64);
    if (!status.ok()) return status;
  }

  counters->read = options.id_bytes == 0;
  counters->bytes = stored_.bytes_read();
  counters->read_ns += now_ns() - started;
  stage->set(Stage::decoding);
  if (options.id_bytes == 0) return fill_picture(counters, stage);
  return fill_mask(crops_.front(), counters);
}

Status RowWorker::fill_picture(RowCounters* counters, StageFlag* stage) {
  const std::uint64_t started = now_ns();
  const RowTask& task = *crops_.front().task;
  Status status = stored_.open(size_of(task), &decoder_);
  if (!status.ok()) return status;
  for (std::size_t i = 0; i < crop_count_; ++i) {
    Crop& crop = crops_[i];
    status = check_crop(*crop.task, crop.options.padding.mode);
    if (!status.ok()) return status;
    if (!crop.plan(decoder_)) return bad_crop(*crop.task);
  }
  counters->decode_ns = now_ns() - started;
  if (decoder_.is_coefficients() && !stored_.is_whole()) {
    stage->set(Stage::reading);
    status = read_needed(counters);
    if (!status.ok()) return status;
    stage->set(Stage::decoding);
  }
  const bool all = decode_together(counters, stage);
  for (std::size_t i = 0; i < crop_count_; ++i) {
    Crop& crop = crops_[i];
    if (!all && !crop.empty) status = decode(&crop, counters, stage);
    if (!status.ok()) return status;
    const std::uint64_t decoded = now_ns();
    stage->set(Stage::resizing);
    crop.finish();
    ++counters->rows;
    counters->resize_ns += now_ns() - decoded;
  }
  if (decoder_.is_tiled()) counters->bytes = stored_.bytes_read();
  return status;
}

// The rest of a KEY.fpc: from the first to the last byte that any crop needs.
Status RowWorker::read_needed(RowCounters* counters) {
  const std::uint64_t started = now_ns();
  CoefficientDecoder::Needed all = {SIZE_MAX, 0};
  for (std::size_t i = 0; i < crop_count_; ++i) {
    if (crops_[i].empty) continue;
    const CoefficientDecoder::Needed one = decoder_.needed(crops_[i].needed.denominator, crops_[i].needed.region);
    all = {std::min(all.first, one.first), std::max(all.end, one.end)};
  }
  const Status status = stored_.read_more(all);
  counters->bytes = stored_.bytes_read();
  counters->read_ns += now_ns() - started;
  return status;
}

// False where each crop is to be decoded by itself.
bool RowWorker::decode_together(RowCounters* counters, StageFlag* stage) {
  const std::uint64_t started = now_ns();
  together_.clear();
  for (std::size_t i = 0; i < crop_count_; ++i) {
    Crop& crop = crops_[i];
    if (!crop.empty) together_.push_back({crop.needed, crop.sink()});
  }
  if (together_.size() < 2) return false;
  stage->set(Stage::decoding);
  const bool good = decoder_.decode_together(together_);
  count_decode(now_ns() - started, counters);
  return good;
}

// Of the time of a decode, crops have taken some to resize the rows that they were given.
void RowWorker::count_decode(std::uint64_t ns, RowCounters* counters) {
  for (std::size_t i = 0; i < crop_count_; ++i) {
    std::uint64_t& resize_ns = crops_[i].resize_ns;
    counters->resize_ns += resize_ns;
    ns -= resize_ns;
    resize_ns = 0;
  }
  counters->decode_ns += ns;
}

Status RowWorker::decode(Crop* crop, RowCounters* counters, StageFlag* stage) {
  stage->set(Stage::decoding);
  const std::uint64_t started = now_ns();
  const Status status = decoder_.decode(crop->needed.denominator, crop->needed.region, crop->sink());
  count_decode(now_ns() - started, counters);
  return status;
}

Status RowWorker::copy(const File& file, const Crop& crop, RowCounters* counters) {
  const std::uint64_t started = now_ns();
  const RowTask& task = *crop.task;
  const std::size_t count = task.size - task.skip;
  Status status;
  if (crop.options.verify) {
    // The hash is that of the whole file, and the row has no place for its header.
    status = stored_.read(file, task.offset, task.size);
    if (status.ok()) status = stored_.check(task.xxh3_64);
    if (status.ok()) std::memcpy(crop.out.data, stored_.data() + task.skip, count);
  } else {
    status = file.check(task.offset, task.size);
    if (status.ok()) status = file.read(task.offset + task.skip, crop.out.data, count);
  }
  counters->bytes = task.size;
  counters->read_ns += now_ns() - started;
  return status;
}

// Reads the whole map to check its hash, or the rows that the crop needs.
Status RowWorker::fill_map(const File& file, const Crop& crop, RowCounters* counters) {
  const std::uint64_t started = now_ns();
  const RowTask& task = *crop.task;
  const RowOptions& options = crop.options;
  Status status = check_crop(task, options.padding.mode);
  if (!status.ok()) return status;
  Rect needed;
  if (!map_.plan(box_of(task), bounds_of(task), crop.out.size, task.flip != 0, options.resampling, options.padding,
                 options.map, &needed)) {
    return bad_crop(task);
  }

  const std::uint32_t row_bytes = task.width * static_cast<std::uint32_t>(options.map.bytes());
  const std::uint32_t first = task.skip + static_cast<std::uint32_t>(needed.y) * row_bytes;
  const std::uint8_t* rows = nullptr;
  if (options.verify && task.xxh3_64 != 0) {
    status = stored_.read(file, task.offset, task.size);
    if (status.ok()) status = stored_.check(task.xxh3_64);
    rows = stored_.data() + first;
  } else if (needed.height > 0) {
    status = file.check(task.offset, task.size);
    const std::uint32_t size = static_cast<std::uint32_t>(needed.height) * row_bytes;
    if (status.ok()) status = stored_.read(file, task.offset + first, size);
    rows = stored_.data();
  }
  if (!status.ok()) return status;
  counters->bytes = stored_.bytes_read();
  const std::uint64_t read = now_ns();
  counters->read_ns += read - started;
  map_.fill(rows, size_of(task).width, crop.out);
  counters->resize_ns = now_ns() - read;
  return status;
}

Status RowWorker::fill_mask(const Crop& crop, RowCounters* counters) {
  const std::uint64_t read = now_ns();
  const RowTask& task = *crop.task;
  const Padding& padding = crop.options.padding;
  Status status = stored_.open(size_of(task), mask_.png());
  if (status.ok()) status = check_crop(task, padding.mode);
  if (status.ok()) {
    const IdSpan out = {crop.out.data, crop.out.size, crop.options.id_bytes};
    status = mask_.fill(box_of(task), bounds_of(task), task.flip != 0, padding, out);
  }
  counters->decode_ns = now_ns() - read;
  return status;
}

}  // namespace fastpipe
