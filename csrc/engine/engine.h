// Batches of row tasks -> filled slots, by a fixed set of threads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "engine/activity.h"
#include "engine/row.h"
#include "io/file.h"
#include "io/readahead.h"

namespace fastpipe {

struct RowError {
  std::size_t row;  // of the picture among the job's: a position in its list of tasks, where each has one crop
  Status status;
};

// One batch in the works. The memory that it writes to must outlive it; `Engine::cancel` ends it.
class Job {
 public:
  // One slot for each crop of a picture; the tasks of a picture are one behind the other, in the order of the slots.
  Job(std::vector<RowTask> tasks, std::vector<Slot> slots);

 private:
  friend class Engine;

  const std::vector<RowTask> tasks_;
  const std::vector<Slot> slots_;
  const std::size_t pictures_;

  bool done() const { return next_ == pictures_ && running_ == 0; }

  // Guarded by Engine::mutex_.
  std::size_t next_ = 0;     // the first picture that no thread has taken
  std::size_t running_ = 0;  // pictures that a thread is at
  std::vector<RowError> errors_;
  mutable std::condition_variable finished_;
};

// Runs jobs in the order in which they came, picture by picture. Results do not depend on the number of threads: a row
// is a function of its task.
class Engine {
 public:
  // `cpus`: how many there are for them. Note [calling]
  Engine(std::vector<Shard> shards, int threads, int cpus, std::size_t max_open_files);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // False, and nothing done, once the engine is closed.
  bool submit(std::shared_ptr<Job> job);

  // Has the kernel read ranges ahead of the jobs that need them; Readahead::add. Nothing is done once closed.
  void read_ahead(const std::vector<ByteRange>& ranges, bool restart) { readahead_.add(ranges, restart); }

  // True when no thread will touch the job any more.
  bool wait(const Job& job, std::chrono::milliseconds timeout);

  // Takes back the rows that have not begun and waits for those that have, but no longer than that: false if a thread
  // may still touch the job and its memory.
  bool cancel(Job& job, std::chrono::milliseconds timeout) noexcept;

  // The rows that failed, in the order of their tasks. After wait.
  std::vector<RowError> errors(const Job& job);

  // Sums over all threads since the start.
  RowCounters counters();

  // What each thread is at.
  std::vector<Activity> activities();

  Levels levels();

  // Cancels everything, joins the threads if they come to an end of what they are at in time, and closes the files.
  // False if they do not: then the engine, and all memory that jobs write to, must be left as they are for good; or
  // close is called again, also by two threads at once.
  bool close(std::chrono::milliseconds timeout) noexcept;

  // Whether close has begun.
  bool stopping();

 private:
  // The row that a thread has taken; `since_ns` 0 where it has none.
  struct Taken {
    std::uint32_t shard = 0;
    std::uint64_t offset = 0;
    std::uint64_t since_ns = 0;  // of the steady clock
  };

  // A thread with nothing to do. Note [calling]
  struct Sleeper {
    std::condition_variable call;
    bool asleep = false;        // and not called
    Sleeper* before = nullptr;  // who fell asleep before it
  };

  void work(int number);
  void stop();

  // How a thread with nothing to do is called, once the mutex is free; null: none need be. Note [calling]
  std::condition_variable* next_call();
  void sleep(Sleeper& self, std::unique_lock<std::mutex>& lock);
  void measure(const RowCounters& spent);

  FileCache files_;
  std::vector<RowWorker> workers_;  // one a thread
  std::mutex mutex_;
  std::condition_variable row_ended_;  // once stopping
  bool stopping_ = false;
  std::deque<std::shared_ptr<Job>> queue_;  // jobs with tasks that no thread has taken
  std::vector<std::weak_ptr<Job>> known_;   // all that have come and are still held; some that are not
  RowCounters counters_;
  const double cpus_;
  double read_ns_ = 0;  // of late; and all the rest
  double compute_ns_ = 0;
  double useful_;  // threads at work. Note [calling]
  int working_ = 0;
  std::vector<Taken> taken_;       // one a thread
  std::vector<StageFlag> stages_;  // one a thread, which sets it without the mutex
  std::vector<Sleeper> sleepers_;  // one a thread
  Sleeper* asleep_ = nullptr;      // who fell asleep last, of those not called
  bool calling_ = false;           // a thread has been called and has not come
  Readahead readahead_;
  ThreadPool threads_;  // last: its threads use all of the above
};

}  // namespace fastpipe
