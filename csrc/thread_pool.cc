#include "thread_pool.h"

#include <pthread.h>
#include <signal.h>

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

ThreadPool::ThreadPool(int threads, const std::function<void(int)>& body, const std::function<void()>& stop) {
  threads_.reserve(static_cast<std::size_t>(threads));
  const BlockSignals block;
  try {
    for (int number = 0; number < threads; ++number) threads_.emplace_back(body, number);
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
