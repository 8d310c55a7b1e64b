#include "engine/engine.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "base/await.h"
#include "base/clock.h"

namespace fastpipe {
namespace {

// No exception leaves a worker: each becomes the row's status.
Status run_rows(RowWorker& worker, const RowTask* tasks, const std::vector<Slot>& slots, RowCounters* counters,
                StageFlag* stage) noexcept {
  try {
    return worker.run(tasks, slots, counters, stage);
  } catch (const std::bad_alloc&) {
    return error(Code::out_of_memory, "for an image of %u x %u", tasks->width, tasks->height);
  } catch (const std::exception& problem) {
    return error(Code::internal, "%s", problem.what());
  }
}

constexpr double kOfLateNs = 50e6;  // of all threads, that tell how many are of use. Note [calling]

std::vector<RowWorker> make_workers(int count, FileCache* files) {
  std::vector<RowWorker> workers;
  workers.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) workers.emplace_back(files);
  return workers;
}

}  // namespace

Job::Job(std::vector<RowTask> tasks, std::vector<Slot> slots)
    : tasks_(std::move(tasks)), slots_(std::move(slots)), pictures_(tasks_.size() / slots_.size()) {
  errors_.reserve(pictures_);  // a worker that reports an error must not need memory for it
}

// Note [calling]
// There may be many more threads than cores, and most of the time few of them have anything to do. So work calls one
// thread, and a thread that takes a row calls the next one while rows are left, but only when the one called before
// has come. Where cores are free, a thread comes at once, and soon all are at work. Where none is, few are called, and
// the training loop's thread need not wait for a core behind them all. The thread that fell asleep last is called
// first: its memory may still be in a cache. Each has a condition of its own: where several wait for one, a notified
// thread may be missed by older versions of glibc (bug 25847), and here nobody would call again.
//
// More threads at work than there are CPUs are of use only while some of them wait for what they read. In the mean, a
// thread that reads for a share r of its time and computes for the rest keeps a CPU busy for 1 - r of it, so that
// cpus / (1 - r) of them keep all busy. This is rounded up, so that one more is there than CPUs. The others sleep: a
// row whose thread waits for a CPU delays its batch.
Engine::Engine(std::vector<Shard> shards, int threads, int cpus, std::size_t max_open_files)
    : files_(std::move(shards), max_open_files),
      workers_(make_workers(threads, &files_)),
      cpus_(cpus),
      useful_(threads),
      taken_(static_cast<std::size_t>(threads)),
      stages_(static_cast<std::size_t>(threads)),
      sleepers_(static_cast<std::size_t>(threads)),
      readahead_(&files_),
      threads_(threads, [this](int number) { work(number); }, [this] { stop(); }) {}

Engine::~Engine() { stop(); }

bool Engine::submit(std::shared_ptr<Job> job) {
  std::condition_variable* call = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return false;
    known_.erase(std::remove_if(known_.begin(), known_.end(), [](const auto& each) { return each.expired(); }),
                 known_.end());
    known_.push_back(job);
    if (!job->tasks_.empty()) queue_.push_back(std::move(job));
    call = next_call();
  }
  if (call != nullptr) call->notify_one();
  return true;
}

bool Engine::wait(const Job& job, std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  return job.finished_.wait_for(lock, timeout, [&job] { return job.done(); });
}

bool Engine::cancel(Job& job, std::chrono::milliseconds timeout) noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  for (; job.next_ < job.pictures_; ++job.next_) job.errors_.push_back({job.next_, error(Code::cancelled, "%s", "")});
  queue_.erase(std::remove_if(queue_.begin(), queue_.end(), [&job](const auto& other) { return other.get() == &job; }),
               queue_.end());
  job.finished_.notify_all();  // others may wait for it; where rows are at work, the last of them tells them
  return job.finished_.wait_for(lock, timeout, [&job] { return job.running_ == 0; });
}

std::vector<RowError> Engine::errors(const Job& job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<RowError> sorted = job.errors_;
  std::sort(sorted.begin(), sorted.end(), [](const RowError& a, const RowError& b) { return a.row < b.row; });
  return sorted;
}

RowCounters Engine::counters() {
  const std::lock_guard<std::mutex> lock(mutex_);
  RowCounters sums = counters_;
  sums.opened = files_.opened();
  return sums;
}

Levels Engine::levels() {
  Levels found;
  found.threads = taken_.size();
  found.hints_waiting = readahead_.waiting();
  std::vector<std::shared_ptr<Job>> held;  // let go of without the mutex
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Taken& taken : taken_) found.threads_busy += taken.since_ns != 0;
  for (const auto& each : known_) {
    held.push_back(each.lock());
    const Job* const job = held.back().get();
    if (job != nullptr) found.rows_waiting += job->tasks_.size() - job->next_ * job->slots_.size();
  }
  return found;
}

std::vector<Activity> Engine::activities() {
  std::vector<Activity> found;
  found.reserve(taken_.size());
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::uint64_t now = now_ns();
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    const Taken& taken = taken_[i];
    if (taken.since_ns == 0) {
      found.push_back({});
    } else {
      found.push_back({stages_[i].get(), taken.shard, taken.offset, now - taken.since_ns});
    }
  }
  return found;
}

void Engine::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    for (const auto& job : queue_) {
      for (; job->next_ < job->pictures_; ++job->next_) {
        job->errors_.push_back({job->next_, error(Code::cancelled, "%s", "")});
      }
      job->finished_.notify_all();
    }
    queue_.clear();
  }
  for (Sleeper& each : sleepers_) each.call.notify_one();
}

bool Engine::stopping() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stopping_;
}

bool Engine::close(std::chrono::milliseconds timeout) noexcept {
  stop();
  {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto ended = [this] {
      return std::all_of(taken_.begin(), taken_.end(), [](const Taken& each) { return each.since_ns == 0; });
    };
    if (!row_ended_.wait_for(lock, timeout, ended)) return false;
  }
  if (!readahead_.close(timeout)) return false;
  threads_.join();
  files_.close();
  return true;
}

std::condition_variable* Engine::next_call() {
  if (queue_.empty() || asleep_ == nullptr || calling_ || working_ >= useful_) return nullptr;
  calling_ = true;
  Sleeper* const called = std::exchange(asleep_, asleep_->before);
  called->asleep = false;
  return &called->call;
}

void Engine::sleep(Sleeper& self, std::unique_lock<std::mutex>& lock) {
  self.before = std::exchange(asleep_, &self);
  self.asleep = true;
  await(self.call, lock, [this, &self] { return stopping_ || !self.asleep; });
  calling_ = false;
}

void Engine::measure(const RowCounters& spent) {
  counters_.add(spent);
  read_ns_ += static_cast<double>(spent.read_ns);
  compute_ns_ += static_cast<double>(spent.decode_ns + spent.resize_ns);
  if (read_ns_ + compute_ns_ > kOfLateNs) {
    useful_ = cpus_ * (read_ns_ + compute_ns_) / std::max(compute_ns_, 1.0);
    read_ns_ /= 2;
    compute_ns_ /= 2;
  }
}

void Engine::work(int number) {
  const auto self = static_cast<std::size_t>(number);
  RowWorker& worker = workers_[self];
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    while (!stopping_ && (queue_.empty() || working_ >= useful_)) sleep(sleepers_[self], lock);
    if (stopping_) return;
    const std::shared_ptr<Job> job = queue_.front();
    const std::size_t picture = job->next_++;
    ++job->running_;
    if (job->next_ == job->pictures_) queue_.pop_front();
    const RowTask* const tasks = &job->tasks_[picture * job->slots_.size()];
    taken_[self] = {tasks->shard, tasks->offset, now_ns()};
    ++working_;
    std::condition_variable* const call = next_call();
    lock.unlock();
    if (call != nullptr) call->notify_one();

    RowCounters spent;
    const Status status = run_rows(worker, tasks, job->slots_, &spent, &stages_[self]);

    lock.lock();
    taken_[self] = {};
    --working_;
    measure(spent);
    if (!status.ok()) {
      ++counters_.failed;
      job->errors_.push_back({picture, status});
    }
    --job->running_;
    if (job->done()) job->finished_.notify_all();
    if (stopping_) row_ended_.notify_all();
  }
}

}  // namespace fastpipe
