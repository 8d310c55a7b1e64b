// Many threads use engines in every way at once, for as long as told; wrong pixels end it. To be run under the thread
// sanitizer, which sees every access of the engine's threads, and under the leak sanitizer.
//
//     stress [--seconds N] [--seed N] [--epochs N] ROWS
//
// ROWS is a text file: a line "shard PATH BYTES" for each shard, then a line "row SHARD OFFSET SIZE WIDTH HEIGHT HASH"
// for each JPEG. --epochs decodes every row so often, in batches, instead of --seconds. Exit status: 0 nothing found;
// 1 wrong pixels or an error where there should be none; a sanitizer's own otherwise.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/xxh3.h"
#include "engine/engine.h"
#include "fuzz/random.h"
#include "jpeg/transcode/transcode.h"

namespace {

using namespace fastpipe;
using fuzz::Random;

constexpr Size kOut = {40, 32};
constexpr std::size_t kRowBytes = std::size_t{3} * kOut.width * kOut.height;
constexpr int kUsers = 4;

struct Options {
  double seconds = 5;
  std::uint64_t seed = 0;
  int epochs = 0;
  std::string rows;
};

struct Rows {
  std::vector<Shard> shards;
  std::vector<RowTask> tasks;         // whole pictures
  std::vector<std::uint64_t> pixels;  // the hash of what each becomes
};

struct Done {
  std::atomic<std::uint64_t> engines{0}, jobs{0}, rows{0}, cancelled{0}, transcoded{0}, wrong{0};
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name.rfind("--", 0) != 0) {
      options.rows = name;
    } else if (i + 1 == argc) {
      std::exit(2);
    } else if (name == "--seconds") {
      options.seconds = std::strtod(argv[++i], nullptr);
    } else if (name == "--seed") {
      options.seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (name == "--epochs") {
      options.epochs = std::atoi(argv[++i]);
    } else {
      std::exit(2);
    }
  }
  return options;
}

Rows read_rows(const std::string& path) {
  Rows rows;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "shard") {
      Shard shard;
      words >> shard.path >> shard.size_bytes;
      rows.shards.push_back(shard);
    } else {
      RowTask task = {};
      words >> task.shard >> task.offset >> task.size >> task.width >> task.height >> task.xxh3_64;
      task.box[2] = task.bounds[2] = task.width;
      task.box[3] = task.bounds[3] = task.height;
      rows.tasks.push_back(task);
    }
    if (!words) {
      std::fprintf(stderr, "stress: cannot read the line %s\n", line.c_str());
      std::exit(2);
    }
  }
  if (rows.tasks.empty()) std::exit(2);
  return rows;
}

std::uint64_t hash_of(const std::vector<std::uint8_t>& images, std::size_t row) {
  return xxh3_64(images.data() + row * kRowBytes, kRowBytes);
}

std::vector<Slot> one_slot(std::uint8_t* images, RowOptions options) { return {{images, kOut, options}}; }

std::vector<std::uint8_t> room_for(std::size_t rows) { return std::vector<std::uint8_t>(rows * kRowBytes); }

// What each row becomes, by a single thread.
void know_pixels(Rows* rows) {
  Engine engine(rows->shards, 1, 1, 4);
  for (const RowTask& task : rows->tasks) {
    std::vector<std::uint8_t> image = room_for(1);
    const auto job = std::make_shared<Job>(std::vector<RowTask>{task}, one_slot(image.data(), RowOptions{true, true}));
    engine.submit(job);
    while (!engine.wait(*job, std::chrono::milliseconds(1000))) {
    }
    for (const RowError& error : engine.errors(*job)) {
      std::fprintf(stderr, "stress: a row cannot be decoded: %s %s\n", words(error.status.code), error.status.detail);
      std::exit(1);
    }
    rows->pixels.push_back(hash_of(image, 0));
  }
}

struct Batch {
  std::vector<std::size_t> picked;  // positions in Rows
  std::vector<std::uint8_t> images;
  std::shared_ptr<Job> job;
};

std::unique_ptr<Batch> make_batch(const Rows& rows, std::vector<std::size_t> picked) {
  auto batch = std::make_unique<Batch>();
  std::vector<RowTask> tasks;
  for (std::size_t i = 0; i < picked.size(); ++i) {
    tasks.push_back(rows.tasks[picked[i]]);
    tasks.back().out_row = static_cast<std::uint32_t>(i);
  }
  batch->images = room_for(picked.size());
  batch->picked = std::move(picked);
  batch->job = std::make_shared<Job>(std::move(tasks), one_slot(batch->images.data(), RowOptions{true, true}));
  return batch;
}

std::unique_ptr<Batch> any_batch(Random* random, const Rows& rows) {
  std::vector<std::size_t> picked(random->below(std::size_t{9}));  // none, too
  for (std::size_t& each : picked) each = random->below(rows.tasks.size());
  return make_batch(rows, std::move(picked));
}

void check(const Rows& rows, Engine* engine, const Batch& batch, Done* done) {
  const std::vector<RowError> errors = engine->errors(*batch.job);
  for (const RowError& error : errors) {
    if (error.status.code == Code::cancelled) continue;
    std::fprintf(stderr, "stress: %s %s\n", words(error.status.code), error.status.detail);
    ++done->wrong;
  }
  if (!errors.empty()) {
    ++done->cancelled;
    return;
  }
  for (std::size_t i = 0; i < batch.picked.size(); ++i) {
    if (hash_of(batch.images, i) != rows.pixels[batch.picked[i]]) {
      std::fprintf(stderr, "stress: wrong pixels\n");
      ++done->wrong;
    }
  }
  ++done->jobs;
  done->rows += batch.picked.size();
}

void hint(Random* random, const Rows& rows, Engine* engine) {
  std::vector<ByteRange> ranges;
  for (int i = 0; i < 5; ++i) {
    const RowTask& task = rows.tasks[random->below(rows.tasks.size())];
    ranges.push_back({task.offset, task.size, task.shard});
  }
  engine->read_ahead(ranges, random->one_in(3));
}

void cancel(Engine* engine, const Batch& batch, Done* done) {
  if (engine->cancel(*batch.job, std::chrono::minutes(2))) return;
  std::fprintf(stderr, "stress: a row does not end\n");
  ++done->wrong;
}

// One user of an engine that others use, too, and may close.
void use(Random random, const Rows& rows, Engine* engine, Done* done) {
  std::vector<std::unique_ptr<Batch>> ahead;
  for (int turn = 0; turn < 12; ++turn) {
    if (random.one_in(2)) hint(&random, rows, engine);
    auto batch = any_batch(&random, rows);
    if (engine->submit(batch->job)) ahead.push_back(std::move(batch));
    if (random.one_in(3)) engine->activities();
    if (random.one_in(3)) engine->counters();
    if (random.one_in(3)) engine->levels();
    if (random.one_in(60)) engine->close(std::chrono::milliseconds(random.below(3)));
    if (ahead.empty() || random.one_in(2)) continue;
    const std::size_t which = random.below(ahead.size());
    if (random.one_in(3)) cancel(engine, *ahead[which], done);
    while (!engine->wait(*ahead[which]->job, std::chrono::milliseconds(random.below(5)))) engine->stopping();
    check(rows, engine, *ahead[which], done);
    ahead.erase(ahead.begin() + static_cast<std::ptrdiff_t>(which));
  }
  for (const auto& batch : ahead) cancel(engine, *batch, done);  // as Python does with a job that is dropped
}

// As pack's threads do: each has its own transcoder.
void transcode(Random random, const Rows& rows, Done* done) {
  Transcoder transcoder;
  for (int turn = 0; turn < 6; ++turn) {
    const RowTask& task = rows.tasks[random.below(rows.tasks.size())];
    std::ifstream file(rows.shards[task.shard].path, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(task.offset));
    std::vector<char> bytes(task.size);
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    TranscodeOptions options;
    options.tile_width = 32;
    JpegInfo info;
    const auto* const data = reinterpret_cast<const std::uint8_t*>(bytes.data());
    const Status status = transcoder.run(data, bytes.size(), {}, options, &info);
    // What pack has written it writes again, byte for byte.
    if (!status.ok() || transcoder.output_size() != bytes.size() ||
        std::memcmp(transcoder.output(), data, bytes.size()) != 0) {
      std::fprintf(stderr, "stress: transcoding differs\n");
      ++done->wrong;
    }
    ++done->transcoded;
  }
}

void stress(const Options& options, const Rows& rows, Done* done) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(options.seconds);
  for (std::uint64_t round = 0; Clock::now() < end && done->wrong == 0; ++round) {
    Random random(options.seed, round);
    Engine engine(rows.shards, 1 + random.below(4), 1 + random.below(2), 1 + random.below(std::size_t{4}));
    ++done->engines;
    std::vector<std::thread> users;
    for (int number = 0; number < kUsers; ++number) {
      users.emplace_back(use, Random(options.seed + 1, round * kUsers + static_cast<unsigned>(number)), std::cref(rows),
                         &engine, done);
    }
    users.emplace_back(transcode, Random(options.seed + 2, round), std::cref(rows), done);
    for (std::thread& user : users) user.join();
  }
}

void run_epochs(const Options& options, const Rows& rows, Done* done) {
  Engine engine(rows.shards, 2, 1, 4);
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    for (std::size_t first = 0; first < rows.tasks.size(); first += 8) {
      std::vector<std::size_t> picked;
      for (std::size_t i = first; i < std::min(first + 8, rows.tasks.size()); ++i) picked.push_back(i);
      const auto batch = make_batch(rows, std::move(picked));
      engine.submit(batch->job);
      while (!engine.wait(*batch->job, std::chrono::milliseconds(1000))) {
      }
      check(rows, &engine, *batch, done);
    }
  }
}

// Whoever waits for a job learns at once that another thread has cancelled it.
bool cancel_wakes_others(const Rows& rows) {
  std::vector<std::uint8_t> images(kRowBytes * rows.tasks.size());
  std::vector<RowTask> many;
  for (int i = 0; i < 20; ++i) many.insert(many.end(), rows.tasks.begin(), rows.tasks.end());
  for (std::size_t i = 0; i < many.size(); ++i) many[i].out_row = static_cast<std::uint32_t>(i % rows.tasks.size());
  Engine engine(rows.shards, 1, 1, 4);
  const auto busy = std::make_shared<Job>(many, one_slot(images.data(), RowOptions{true, false}));
  const auto waiting = std::make_shared<Job>(rows.tasks, one_slot(images.data(), RowOptions{true, false}));
  engine.submit(busy);
  engine.submit(waiting);
  constexpr std::chrono::seconds kLong{60};
  const auto started = std::chrono::steady_clock::now();
  std::thread other([&] { engine.wait(*waiting, kLong); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  engine.cancel(*waiting, kLong);
  other.join();
  engine.cancel(*busy, kLong);
  return std::chrono::steady_clock::now() - started < kLong / 2;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  Rows rows = read_rows(options.rows);
  know_pixels(&rows);
  Done done;
  if (!cancel_wakes_others(rows)) ++done.wrong;
  if (options.epochs > 0) {
    run_epochs(options, rows, &done);
  } else {
    stress(options, rows, &done);
  }
  std::printf("%llu engines, %llu batches, %llu rows, %llu cancelled, %llu transcoded, %llu wrong\n",
              static_cast<unsigned long long>(done.engines), static_cast<unsigned long long>(done.jobs),
              static_cast<unsigned long long>(done.rows), static_cast<unsigned long long>(done.cancelled),
              static_cast<unsigned long long>(done.transcoded), static_cast<unsigned long long>(done.wrong));
  return done.wrong == 0 ? 0 : 1;
}
