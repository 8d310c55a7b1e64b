// Sleeping until something has come true.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace fastpipe {

// Returns with the lock held as soon as `done` holds, which whoever makes it true has to notify.
//
// Note [waiting in a wheel]. This is condition_variable::wait without calling it. That function has a new symbol in the
// libstdc++ of GCC 12 (GLIBCXX_3.4.30), so that an engine built there would not load on systems with an older one: RHEL
// 9 and its kin, all at manylinux_2_34. Waiting with a timeout calls glibc directly. Waking once an hour costs nothing.
template <typename Done>
void await(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, const Done& done) {
  while (!changed.wait_for(lock, std::chrono::hours(1), done)) {
  }
}

}  // namespace fastpipe
