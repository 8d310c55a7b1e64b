#include "engine/memory_rows.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <new>

#include "base/thread_pool.h"

namespace fastpipe {
namespace {

void to_planes(const std::uint8_t* rgb, std::size_t pixels, std::uint8_t* planes) {
  std::uint8_t* const red = planes;
  std::uint8_t* const green = planes + pixels;
  std::uint8_t* const blue = planes + 2 * pixels;
  for (std::size_t i = 0; i < pixels; ++i, rgb += 3) {
    red[i] = rgb[0];
    green[i] = rgb[1];
    blue[i] = rgb[2];
  }
}

Status fill_row(RowScratch* scratch, const std::uint8_t* picture, const RowTask& task, RowOptions options,
                const BatchSpan& images) {
  const PixelSpan row = row_of(images.data, images.size, options.form.bytes(), task);
  if (!images.planar) return scratch->worker.run(picture, task, options, row);
  scratch->pixels.resize(static_cast<std::size_t>(row.stride * row.size.height));
  const Status status = scratch->worker.run(picture, task, options, {scratch->pixels.data(), row.size, row.stride});
  if (status.ok()) to_planes(scratch->pixels.data(), scratch->pixels.size() / 3, row.data);
  give_back_if_giant(&scratch->pixels);
  return status;
}

// No exception leaves a thread: each becomes the row's status.
Status guarded_row(RowScratch* scratch, const std::uint8_t* picture, const RowTask& task, RowOptions options,
                   const BatchSpan& images) noexcept {
  try {
    return fill_row(scratch, picture, task, options, images);
  } catch (const std::bad_alloc&) {
    return error(Code::out_of_memory, "for an image of %u x %u", task.width, task.height);
  } catch (const std::exception& problem) {
    return error(Code::internal, "%s", problem.what());
  }
}

}  // namespace

std::vector<RowError> fill_rows(const std::vector<const std::uint8_t*>& pictures, const std::vector<RowTask>& tasks,
                                RowOptions options, const BatchSpan& images, int threads, RowScratch* scratch) {
  std::vector<Status> found(tasks.size());
  std::atomic<std::size_t> next{0};  // relaxed: it only deals out rows; the joins publish what was written
  const auto work = [&](RowScratch* mine) {
    for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < tasks.size();) {
      found[i] = guarded_row(mine, pictures[i], tasks[i], options, images);
    }
  };
  const int helpers = static_cast<int>(std::min<std::size_t>(static_cast<std::size_t>(threads), tasks.size())) - 1;
  if (helpers < 1) {
    work(scratch);
  } else {
    std::vector<RowScratch> scratches(static_cast<std::size_t>(helpers));
    ThreadPool pool(
        helpers, [&](int number) { work(&scratches[static_cast<std::size_t>(number)]); },
        [&] { next.store(tasks.size(), std::memory_order_relaxed); });
    work(scratch);
    pool.join();
  }
  std::vector<RowError> failed;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!found[i].ok()) failed.push_back({i, found[i]});
  }
  return failed;
}

}  // namespace fastpipe
