#include "io/readahead.h"

#include <exception>
#include <memory>

#include "base/await.h"

namespace fastpipe {
namespace {

// How much of the start of the range was hinted; 0 where that is not possible.
std::uint64_t hint(FileCache* files, const ByteRange& range) noexcept {
  try {
    std::shared_ptr<const File> file;
    if (!files->get(range.shard, &file).ok()) return 0;
    return file->will_need(range.offset, range.size);
  } catch (const std::exception&) {  // no memory to open a file
    return 0;
  }
}

}  // namespace

Readahead::Readahead(FileCache* files) : files_(files), thread_(1, [this](int) { work(); }, [this] { stop(); }) {}

Readahead::~Readahead() { stop(); }

void Readahead::add(const std::vector<ByteRange>& ranges, bool restart) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return;
    if (restart) {
      queue_.clear();
      ++restarts_;
    }
    queue_.insert(queue_.end(), ranges.begin(), ranges.end());
  }
  changed_.notify_one();
}

std::size_t Readahead::waiting() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return queue_.size();
}

void Readahead::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    queue_.clear();
  }
  changed_.notify_one();
}

bool Readahead::close(std::chrono::milliseconds timeout) noexcept {
  stop();
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [this] { return !hinting_; })) return false;
  }
  thread_.join();
  return true;
}

void Readahead::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    await(changed_, lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    ByteRange range = queue_.front();
    queue_.pop_front();
    const std::uint64_t round = restarts_;
    while (range.size > 0 && round == restarts_ && !stopping_) {
      hinting_ = true;
      lock.unlock();
      const std::uint64_t done = hint(files_, range);
      lock.lock();
      hinting_ = false;
      if (stopping_) changed_.notify_all();
      if (done == 0) break;
      range.offset += done;
      range.size -= done;
    }
  }
}

}  // namespace fastpipe
