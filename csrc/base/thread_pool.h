// A fixed set of threads that run one function each until it returns.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace fastpipe {

// Starts `threads` threads, each of which calls body(number). Every signal is blocked in them, so that Ctrl-C goes to
// the program's main thread. The owner makes `body` return; `join`, or the destructor, waits for that.
class ThreadPool {
 public:
  // Throws std::system_error where the system refuses a thread, std::bad_alloc where it has no memory for one; `stop`
  // is then called, and those that started are joined.
  ThreadPool(int threads, const std::function<void(int)>& body, const std::function<void()>& stop);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Safe to call twice, also by two threads at once: each returns when all threads have ended.
  void join() noexcept;

 private:
  // Whether this thread has what it needs besides its stack. Note [memory of a thread]
  static bool has_memory() noexcept;
  void begin(bool with_memory) noexcept;

  std::mutex joining_;
  std::mutex mutex_;
  std::condition_variable begun_changed_;
  int begun_ = 0;
  bool short_of_memory_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fastpipe
