// Shard number and byte range -> bytes, through a bounded cache of open files.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"

namespace fastpipe {

// An open file descriptor; closes itself, also where there is no memory for what it was opened for.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor& operator=(Descriptor&&) = delete;

  int get() const { return fd_; }

 private:
  int fd_;  // -1: moved from
};

// An open shard.
class File {
 public:
  File(Descriptor fd, std::uint64_t size_bytes, std::uint64_t hint_bytes)
      : fd_(std::move(fd)), size_bytes_(size_bytes), hint_bytes_(hint_bytes) {}

  // Whether a range lies inside the file; to be asked before memory is made for one that an index names.
  Status check(std::uint64_t offset, std::uint64_t size) const;

  // Reads exactly `size` bytes at `offset`; a shorter file is an error.
  Status read(std::uint64_t offset, std::uint8_t* out, std::size_t size) const;

  // Asks the kernel to read a range into its page cache, or the start of it: returns how many bytes were asked for, 0
  // where the system refuses. May wait while the disk's queue is full.
  std::uint64_t will_need(std::uint64_t offset, std::uint64_t size) const;

 private:
  const Descriptor fd_;
  const std::uint64_t size_bytes_;
  const std::uint64_t hint_bytes_;  // the most that one hint may ask for; Note [size of a hint]
};

struct Shard {
  static constexpr std::int64_t kAnyTime = -1;

  std::string path;
  std::uint64_t size_bytes;
  std::int64_t mtime_ns = kAnyTime;  // when it was last written, in nanoseconds since 1970
};

// How much one hint may ask for, by the device of the file; Note [size of a hint]. Asking the system takes longer than
// opening a file, so each device is asked for once. Thread-safe.
class HintLimits {
 public:
  std::uint64_t of(dev_t device);

 private:
  std::mutex mutex_;
  std::vector<std::pair<dev_t, std::uint64_t>> known_;
};

// Opens a shard. One whose size, or time, is not the recorded one is refused: its offsets would lie. Without `limits`
// hints are small.
Status open_shard(const Shard& shard, HintLimits* limits, std::shared_ptr<const File>* file);

// Keeps at most `max_open` shards open, the least recently used closed first. Thread-safe.
class FileCache {
 public:
  FileCache(std::vector<Shard> shards, std::size_t max_open);

  // The open file of `shard`, as open_shard opens it, for hints too. It stays open while the caller holds it, also
  // after the cache lets go of it.
  Status get(std::uint32_t shard, std::shared_ptr<const File>* file);

  // Lets go of all files.
  void close() noexcept;

  // How often a shard has been opened.
  std::uint64_t opened() const { return opened_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    std::uint32_t shard;
    std::shared_ptr<const File> file;
  };

  const std::vector<Shard> shards_;
  const std::size_t max_open_;
  HintLimits hint_limits_;
  std::atomic<std::uint64_t> opened_{0};
  std::mutex mutex_;
  std::list<Entry> recent_;  // most recently used first
  std::unordered_map<std::uint32_t, std::list<Entry>::iterator> where_;
};

}  // namespace fastpipe
