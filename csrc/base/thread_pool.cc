#include "base/thread_pool.h"

#include <pthread.h>
#include <signal.h>

#include <cstdlib>
#include <exception>
#include <new>

#include "base/await.h"

namespace fastpipe {
namespace {

// Threads inherit the mask of the thread that makes them.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);  // faulthandler reports those
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

// Note [memory of a thread]
// A thread's first exception needs memory for thread-local data, and glibc ends the process where there is none. So
// each thread makes sure of it before it begins, while that can still be said; later a lack of memory is one row's
// error.
bool ThreadPool::has_memory() noexcept {
  void* const some = std::malloc(4096);
  if (some == nullptr) return false;
  std::free(some);
  volatile const int exceptions = std::uncaught_exceptions();  // asked, not guessed: that makes the data of exceptions
  return exceptions == 0;
}

void ThreadPool::begin(bool with_memory) noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++begun_;
    short_of_memory_ |= !with_memory;
  }
  begun_changed_.notify_one();
}

ThreadPool::ThreadPool(int threads, const std::function<void(int)>& body, const std::function<void()>& stop) {
  threads_.reserve(static_cast<std::size_t>(threads));
  const auto run = [this, body](int number) {
    const bool able = has_memory();
    begin(able);
    if (able) body(number);
  };
  const BlockSignals block;
  try {
    for (int number = 0; number < threads; ++number) threads_.emplace_back(run, number);
    std::unique_lock<std::mutex> lock(mutex_);
    await(begun_changed_, lock, [this, threads] { return begun_ == threads; });
    if (short_of_memory_) throw std::bad_alloc();
  } catch (...) {
    stop();
    join();
    throw;
  }
}

ThreadPool::~ThreadPool() { join(); }

void ThreadPool::join() noexcept {
  const std::lock_guard<std::mutex> lock(joining_);  // a thread that is joined by two at once may keep both for ever
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace fastpipe
