// When the GIL is let go of, and when it is kept.
#pragma once

#include <pybind11/pybind11.h>

#ifdef __linux__
#include <sys/syscall.h>
#else
#include <pthread.h>
#endif
#include <unistd.h>

#include <exception>

namespace fastpipe {

// Note [without a GIL]
// The free-threaded Python has none, so the bindings never count on it. What threads share here is made at the import
// and never changed, is atomic, or is the core's, which has locks of its own. What keeps its memory between calls
// belongs to a thread. Arrays and dicts that come in are the caller's: no other thread may change them during a call.
// `make tsan` sees the GIL as any other lock, and so does not report what only the GIL keeps apart. With the
// suppression `called_from_lib:libpython3` in TSAN_OPTIONS it does, besides the counts of references and what numpy and
// pybind11 lock in free-threaded builds alone: to be read, not to pass.

// Note [the end of the program]
// When the interpreter is being finalized, taking the GIL back ends a daemon thread by unwinding its stack, which must
// not meet a destructor or anything else that is noexcept. So the GIL is let go of by plain calls; and destructors keep
// it once the engine is stopping, which it is by then: no worker needs the GIL, so the wait is short and cannot
// deadlock. An engine that dies unclosed lets the GIL go in the main thread alone, which is never ended so.
inline bool in_main_thread() {
#ifdef __linux__
  return ::syscall(SYS_gettid) == ::getpid();
#else
  return ::pthread_main_np() != 0;
#endif
}

// What `work` throws, such as a lack of memory, is thrown on with the GIL held: its way out runs Python's code.
template <typename Work>
void without_gil(Work work) {
  PyThreadState* const state = PyEval_SaveThread();
  std::exception_ptr thrown;
  try {
    work();
  } catch (...) {
    thrown = std::current_exception();
  }
  PyEval_RestoreThread(state);
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace fastpipe
