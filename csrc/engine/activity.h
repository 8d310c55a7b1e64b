// What a thread of the engine is at, for those who want to know why nothing comes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace fastpipe {

enum class Stage : std::uint8_t { idle, opening, reading, decoding, resizing };

// Told by the thread itself. The order of stores to different threads' stages means nothing, so they are relaxed.
// Each has a cache line of its own: threads set them several times a row.
class alignas(64) StageFlag {
 public:
  void set(Stage stage) { stage_.store(stage, std::memory_order_relaxed); }
  Stage get() const { return stage_.load(std::memory_order_relaxed); }

 private:
  std::atomic<Stage> stage_{Stage::idle};
};

// A thread's row of work at one moment.
struct Activity {
  Stage stage = Stage::idle;
  std::uint32_t shard = 0;
  std::uint64_t offset = 0;
  std::uint64_t since_ns = 0;  // how long it has been at this row
};

// What is waiting where at one moment.
struct Levels {
  std::size_t threads = 0;        // of the engine
  std::size_t threads_busy = 0;   // of these, at a row
  std::size_t rows_waiting = 0;   // that no thread has taken
  std::size_t hints_waiting = 0;  // ranges that the kernel has not been asked to read ahead
};

}  // namespace fastpipe
