// A fixed set of threads that run one function each until it returns.
#pragma once

#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace fastpipe {

// Starts `threads` threads, each of which calls body(number). Every signal is blocked in them, so that Ctrl-C goes to
// the program's main thread. The owner makes `body` return; `join`, or the destructor, waits for that.
class ThreadPool {
 public:
  // Throws std::system_error where the system refuses a thread; `stop` is then called, and those that started are
  // joined.
  ThreadPool(int threads, const std::function<void(int)>& body, const std::function<void()>& stop);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Safe to call twice, also by two threads at once: each returns when all threads have ended.
  void join() noexcept;

 private:
  std::mutex joining_;
  std::vector<std::thread> threads_;
};

}  // namespace fastpipe
