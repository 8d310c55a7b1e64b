#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

#include "fpc_input.h"
#include "png_input.h"
#include "targets.h"

namespace fuzz {
namespace {

using namespace fastpipe;

constexpr std::uint64_t kShardBytes = 1 << 20;
constexpr std::uint64_t kAt = 4096;
constexpr std::size_t kBehind = 4096;  // zeros behind the input, so that no earlier one is seen
constexpr int kMostOut = 48;           // pixels

// What the frame header says.
Size size_of(const Bytes& input) {
  const Layout layout = layout_of(input);
  const Segment* const frame = layout.frame();
  if (frame == nullptr) return {16, 16};
  const std::size_t at = frame->begin + 5;
  return {input[at + 2] << 8 | input[at + 3], input[at] << 8 | input[at + 1]};
}

// A part of `length` that begins somewhere.
void part(Random* random, int length, std::int32_t* begin, std::int32_t* size) {
  *begin = random->one_in(3) ? 0 : random->below(std::max(length, 1));
  *size = random->one_in(3) ? length - *begin : 1 + random->below(std::max(length - *begin, 1));
}

void lie_about_place(Random* random, RowTask* task) {
  const std::uint64_t offsets[] = {0, kAt - 1, kAt + 1, kShardBytes - 10, kShardBytes, ~std::uint64_t{0}, 1ull << 63};
  const std::uint32_t sizes[] = {0, 1, task->size / 2, task->size + 1, task->size + 3000, 1u << 20, ~0u};
  if (random->one_in(2)) task->offset = offsets[random->below(std::size(offsets))];
  if (random->one_in(2)) task->size = sizes[random->below(std::size(sizes))];
  if (random->one_in(8)) task->shard = random->one_in(2) ? 1 : ~0u;
}

void lie_about_crop(Random* random, RowTask* task) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double values[] = {std::nan(""), infinity, -infinity, -1, 0, 1e-12, 1e300, 1e9};
  const std::int32_t whole[] = {std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min(), -1,
                                0, 65535};
  if (random->one_in(2)) {
    task->box[random->below(4)] = values[random->below(std::size(values))];
  } else {
    task->bounds[random->below(4)] = whole[random->below(std::size(whole))];
  }
}

void crop(Random* random, RowTask* task) {
  part(random, task->width, &task->bounds[0], &task->bounds[2]);
  part(random, task->height, &task->bounds[1], &task->bounds[3]);
  for (int i = 0; i < 2; ++i) {
    const double taken = random->one_in(2) ? 1 : 0.02 + 0.98 * random->fraction();
    task->box[2 + i] = task->bounds[2 + i] * taken;
    task->box[i] = task->bounds[i] + (task->bounds[2 + i] - task->box[2 + i]) * random->fraction();
  }
  task->flip = random->one_in(2);
}

RowTask make_task(Random* random, const Bytes& input, Size size) {
  if (random->one_in(16)) size = {random->below(300), random->below(300)};
  RowTask task = {};
  task.offset = kAt;
  task.size = static_cast<std::uint32_t>(input.size());
  task.width = static_cast<std::uint16_t>(size.width);
  task.height = static_cast<std::uint16_t>(size.height);
  crop(random, &task);
  if (random->one_in(12)) lie_about_place(random, &task);
  if (random->one_in(24)) lie_about_crop(random, &task);
  return task;
}

}  // namespace

RowTarget::RowTarget() {
  char path[] = "/tmp/fastpipe-fuzz-XXXXXX";
  fd_ = ::mkstemp(path);
  std::shared_ptr<const File> file;
  const bool sized = fd_ >= 0 && ::ftruncate(fd_, static_cast<off_t>(kShardBytes)) == 0;
  files_ = std::make_unique<FileCache>(std::vector<Shard>{{path, kShardBytes}}, 4);
  const bool opened = sized && files_->get(0, &file).ok();  // it stays open
  if (fd_ >= 0) ::unlink(path);
  if (!opened) {
    std::fprintf(stderr, "fuzz: no file can be made in /tmp\n");
    std::exit(2);
  }
  worker_ = std::make_unique<RowWorker>(files_.get());
}

void RowTarget::put(const Bytes& input) {
  Bytes bytes = input;
  bytes.resize(input.size() + kBehind);
  if (::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(kAt)) != static_cast<ssize_t>(bytes.size())) {
    std::fprintf(stderr, "fuzz: the file in /tmp cannot be written\n");
    std::exit(2);
  }
}

std::string RowTarget::run(Random* random, const Bytes& input, Tally* tally) {
  put(input);
  return fill(random, make_task(random, input, size_of(input)), 0, tally);
}

std::string RowTarget::run_fpc(Random* random, const Bytes& input, Tally* tally) {
  put(input);
  RowTask task = make_task(random, input, fpc_size_of(input));
  task.coefficients = random->one_in(4) ? 0 : 1;
  return fill(random, task, 0, tally);
}

std::string RowTarget::run_png(Random* random, const Bytes& input, Tally* tally) {
  const int kinds[] = {0, 1, 4};
  put(input);
  RowTask task = make_task(random, input, png_size_of(input));
  return fill(random, task, kinds[random->below(std::size(kinds))], tally);
}

// As one crop, or as several of the same picture, each with a slot of its own.
std::string RowTarget::fill(Random* random, const RowTask& task, int id_bytes, Tally* tally) {
  const std::size_t crops = id_bytes == 0 && random->one_in(4) ? 2 + static_cast<std::size_t>(random->below(3)) : 1;
  const int channels[] = {1, 3, 3, 4};
  const PixelForm form = {channels[random->below(std::size(channels))], random->one_in(4) ? 16 : 8};
  std::vector<RowTask> tasks(crops, task);
  std::vector<Slot> slots(crops);
  std::vector<Bytes> memory(crops);
  for (std::size_t i = 0; i < crops; ++i) {
    if (i > 0) crop(random, &tasks[i]);
    slots[i].options = {random->one_in(3), false};  // a hash would keep all damage from the decoders
    slots[i].options.id_bytes = id_bytes;
    slots[i].options.form = form;
    slots[i].options.resampling = {static_cast<Interpolation>(random->below(3)), !random->one_in(4)};
    if (random->one_in(3)) {
      slots[i].options.padding.mode = static_cast<PaddingMode>(random->below(5));
      for (int k = 0; k < 2; ++k) tasks[i].box[k] += tasks[i].bounds[2 + k] * (3 * random->fraction() - 1.5);
    }
    slots[i].size = {1 + random->below(kMostOut), 1 + random->below(kMostOut)};
    // Of its very size, so that a sanitizer sees a byte beyond it.
    memory[i].resize(static_cast<std::size_t>(slots[i].size.width) * static_cast<std::size_t>(slots[i].size.height) *
                     static_cast<std::size_t>(slots[i].options.pixel_bytes()));
    slots[i].images = memory[i].data();
  }
  RowCounters counters;
  StageFlag stage;
  const Status status = worker_->run(tasks.data(), slots, &counters, &stage);
  tally->rows += status.ok() ? 1 : 0;
  for (std::size_t i = 0; status.ok() && crops > 1 && i < crops; ++i) {
    Bytes alone(memory[i].size());
    slots[i].images = alone.data();
    const Status own = worker_->run(&tasks[i], {slots[i]}, &counters, &stage);
    if (!own.ok()) return std::string("a crop is refused, several are not: ") + own.detail;
    if (alone != memory[i]) return "a crop differs from the same crop among several";
  }
  return "";
}

}  // namespace fuzz
