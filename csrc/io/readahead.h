// Byte ranges that will be read soon -> hints to the kernel, given by a thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "base/thread_pool.h"
#include "io/file.h"

namespace fastpipe {

// Part of a shard. Mirrored by numpy through the bindings, so: plain data.
struct ByteRange {
  std::uint64_t offset;  // in bytes
  std::uint64_t size;    // in bytes
  std::uint32_t shard;
};

// Has the kernel read ranges into its page cache, in the order in which they came. A hint waits where the disk's queue
// is full, which is why neither Python nor a worker gives it. One that fails is no error: the read will say what is
// wrong, if it still is.
class Readahead {
 public:
  // Throws std::system_error where the system refuses the thread.
  explicit Readahead(FileCache* files);
  ~Readahead();
  Readahead(const Readahead&) = delete;
  Readahead& operator=(const Readahead&) = delete;

  // `restart` drops what has not been hinted yet.
  void add(const std::vector<ByteRange>& ranges, bool restart);

  // Ranges that have not been hinted, the one at hand not among them.
  std::size_t waiting();

  // Drops the rest, and joins the thread if its hint ends in time; false if not. May be called again.
  bool close(std::chrono::milliseconds timeout) noexcept;

 private:
  void work();
  void stop();

  FileCache* const files_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  bool hinting_ = false;
  std::uint64_t restarts_ = 0;  // tells the thread that what it is at has been dropped
  std::deque<ByteRange> queue_;
  ThreadPool thread_;  // last: it uses all of the above
};

}  // namespace fastpipe
