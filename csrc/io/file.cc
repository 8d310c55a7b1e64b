#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/sysmacros.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>

namespace fastpipe {
namespace {

std::string errno_words(int number) { return std::generic_category().message(number); }

// Note [size of a hint]
// Linux reads no more for one hint than the device's readahead limit, or than its largest request if that is more, and
// drops the rest of the range without a word. The usual limit is 128 kB, so a range is asked for in pieces. Larger
// pieces where the device takes them: a disk in a cloud allows so many requests a second, whatever their size.
constexpr std::uint64_t kLeastHintBytes = 128 * 1024;
constexpr std::uint64_t kMostHintBytes = 1024 * 1024;  // so that whoever stops hinting is heard soon

std::uint64_t read_kilobytes(const std::string& path) {
  std::uint64_t kilobytes = 0;
  std::ifstream file(path);
  return file >> kilobytes ? kilobytes * 1024 : 0;
}

std::uint64_t hint_limit(dev_t device) {
#ifdef __linux__
  const std::string number = std::to_string(major(device)) + ":" + std::to_string(minor(device));
  const std::string block = "/sys/dev/block/" + number;
  std::uint64_t limit = kLeastHintBytes;
  for (const std::string& file : {
           block + "/queue/max_sectors_kb",                // a disk
           block + "/../queue/max_sectors_kb",             // a partition of it
           "/sys/class/bdi/" + number + "/read_ahead_kb",  // network file systems and the like
       }) {
    limit = std::max(limit, read_kilobytes(file));
  }
  return std::min(limit, kMostHintBytes);
#else
  static_cast<void>(device);
  return kMostHintBytes;
#endif
}

std::int64_t mtime_ns(const struct stat& info) {
#ifdef __APPLE__
  const struct timespec& time = info.st_mtimespec;
#else
  const struct timespec& time = info.st_mtim;
#endif
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

std::uint64_t HintLimits::of(dev_t device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [known, limit] : known_) {
    if (known == device) return limit;
  }
  return known_.emplace_back(device, hint_limit(device)).second;
}

Status open_shard(const Shard& shard, HintLimits* limits, std::shared_ptr<const File>* file) {
  int number;
  do {
    number = ::open(shard.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe of that name would block
  } while (number < 0 && errno == EINTR);
  if (number < 0) return error(Code::open_failed, "%s", errno_words(errno).c_str());
  Descriptor fd(number);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return error(Code::open_failed, "%s", errno_words(errno).c_str());
  if (!S_ISREG(info.st_mode)) return error(Code::open_failed, "expected a regular file");
  if (static_cast<std::uint64_t>(info.st_size) != shard.size_bytes) {
    const bool shorter = static_cast<std::uint64_t>(info.st_size) < shard.size_bytes;
    return error(Code::shard_changed, "expected %llu bytes, found %llu%s",
                 static_cast<unsigned long long>(shard.size_bytes), static_cast<unsigned long long>(info.st_size),
                 shorter ? "; it may have been copied only in part: copy it again" : "");
  }
  if (shard.mtime_ns != Shard::kAnyTime && shard.mtime_ns != mtime_ns(info)) {
    return error(Code::shard_changed, "it was written again, with the same size");
  }
  const std::uint64_t hint_bytes = limits != nullptr ? limits->of(info.st_dev) : kLeastHintBytes;
  *file = std::make_shared<const File>(std::move(fd), shard.size_bytes, hint_bytes);
  return {};
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Status File::check(std::uint64_t offset, std::uint64_t size) const {
  if (offset <= size_bytes_ && size <= size_bytes_ - offset) return {};
  return error(Code::shard_too_short, "%llu bytes at %llu, of %llu", static_cast<unsigned long long>(size),
               static_cast<unsigned long long>(offset), static_cast<unsigned long long>(size_bytes_));
}

Status File::read(std::uint64_t offset, std::uint8_t* out, std::size_t size) const {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got = ::pread(fd_.get(), out + done, size - done, static_cast<off_t>(offset + done));
    if (got > 0) {
      done += static_cast<std::size_t>(got);
    } else if (got == 0) {
      return error(Code::shard_too_short, "needs %zu bytes, found %zu", size, done);
    } else if (errno != EINTR) {
      return error(Code::read_failed, "%s, after %zu of %zu bytes; check the disk or the network",
                   errno_words(errno).c_str(), done, size);
    }
  }
  return {};
}

std::uint64_t File::will_need(std::uint64_t offset, std::uint64_t size) const {
  size = std::min(size, hint_bytes_);
#if defined(POSIX_FADV_WILLNEED)
  const bool asked =
      ::posix_fadvise(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(size), POSIX_FADV_WILLNEED) == 0;
#elif defined(F_RDADVISE)  // macOS
  struct radvisory advice = {};
  advice.ra_offset = static_cast<off_t>(offset);
  advice.ra_count = static_cast<int>(size);
  const bool asked = ::fcntl(fd_.get(), F_RDADVISE, &advice) == 0;
#else
  const bool asked = false;
#endif
  return asked ? size : 0;
}

FileCache::FileCache(std::vector<Shard> shards, std::size_t max_open)
    : shards_(std::move(shards)), max_open_(std::max<std::size_t>(max_open, 1)) {}

Status FileCache::get(std::uint32_t shard, std::shared_ptr<const File>* file) {
  if (shard >= shards_.size()) {
    return error(Code::open_failed, "the index names shard %u of %zu", shard, shards_.size());
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = where_.find(shard);
    if (found != where_.end()) {
      recent_.splice(recent_.begin(), recent_, found->second);
      *file = found->second->file;
      return {};
    }
  }
  // Opening can be slow (a network file system): other workers go on meanwhile. Two may open the same shard;
  // the second finds the first one's and uses that.
  const Status status = open_shard(shards_[shard], &hint_limits_, file);
  if (!status.ok()) return status;
  opened_.fetch_add(1, std::memory_order_relaxed);
  std::shared_ptr<const File> closing;  // closed after the lock is released
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = where_.find(shard);
  if (found != where_.end()) {
    *file = found->second->file;
    return {};
  }
  recent_.push_front({shard, *file});
  try {
    where_[shard] = recent_.begin();
  } catch (...) {
    recent_.pop_front();
    throw;
  }
  if (recent_.size() > max_open_) {
    closing = std::move(recent_.back().file);
    where_.erase(recent_.back().shard);
    recent_.pop_back();
  }
  return {};
}

void FileCache::close() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  where_.clear();
  recent_.clear();
}

}  // namespace fastpipe
