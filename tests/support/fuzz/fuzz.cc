// Damages JPEGs, KEY.fpcs, PNGs and KEY.tifs and gives them to the engine: a seeded mutator, for any compiler. Each
// input is named by the seed and its number, whatever ran before it.
//
//     fuzz [--seed N] [--first N] [--count N] [--seconds N] [--most-seconds N] [--most-mb N] [--write FILE] FOLDER...
//
// FOLDERs hold the files to damage. Exit status: 0 nothing found; 1 wrong pixels, an input that took over
// --most-seconds of processor time (5), or over --most-mb of memory (512); a sanitizer's own otherwise. --seconds ends
// the run early. --write puts the first input into a file, and runs nothing.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <string>
#include <vector>

#include "coefficients/fpc_header.h"
#include "fpc_input.h"
#include "mutate.h"
#include "png_input.h"
#include "targets.h"
#include "tiled/tiled_header.h"
#include "tiled_input.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FUZZ_SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(FUZZ_SANITIZED)
#include <sanitizer/common_interface_defs.h>
#endif

// What was freed is kept for a while, to find uses of it; by default that alone is 256 MB.
extern "C" const char* __asan_default_options() {
  return "quarantine_size_mb=24:allocator_may_return_null=1:detect_leaks=1:malloc_context_size=8";
}
extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1"; }

namespace {

constexpr std::size_t kLargestSeed = 500'000;  // bytes
constexpr int kHangs = 120;                    // seconds of one input after which it is said which one it is

struct Options {
  std::uint64_t seed = 0, first = 0, count = 1000;
  double seconds = 1e9, most_seconds = 5;
  long most_mb = 512;
  std::string write;
  std::vector<std::string> folders;
};

std::uint64_t seed_at_work, number_at_work;

[[noreturn]] void usage(const char* problem) {
  std::fprintf(stderr, "fuzz: %s; usage: see the first lines of support/fuzz/fuzz.cc\n", problem);
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name.rfind("--", 0) != 0) {
      options.folders.push_back(name);
      continue;
    }
    if (++i == argc) usage((name + " takes a value").c_str());
    const char* const value = argv[i];
    if (name == "--seed") {
      options.seed = std::strtoull(value, nullptr, 10);
    } else if (name == "--first") {
      options.first = std::strtoull(value, nullptr, 10);
    } else if (name == "--count") {
      options.count = std::strtoull(value, nullptr, 10);
    } else if (name == "--seconds") {
      options.seconds = std::strtod(value, nullptr);
    } else if (name == "--most-seconds") {
      options.most_seconds = std::strtod(value, nullptr);
    } else if (name == "--most-mb") {
      options.most_mb = std::strtol(value, nullptr, 10);
    } else if (name == "--write") {
      options.write = value;
    } else {
      usage(("unknown option " + name).c_str());
    }
  }
  return options;
}

struct Seeds {
  std::vector<fuzz::Bytes> jpegs, fpcs, pngs, tifs;
};

Seeds read_seeds(const std::vector<std::string>& folders) {
  std::vector<std::filesystem::path> files;
  for (const std::string& folder : folders) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file() && entry.file_size() <= kLargestSeed) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  Seeds seeds;
  for (const std::filesystem::path& file : files) {
    std::ifstream stream(file, std::ios::binary);
    fuzz::Bytes bytes{std::istreambuf_iterator<char>(stream), {}};
    if (bytes.size() > 2 && bytes[0] == 0xFF && bytes[1] == 0xD8) {
      seeds.jpegs.push_back(std::move(bytes));
    } else if (bytes.size() > 2 && bytes[0] == 0x89 && bytes[1] == 'P') {
      seeds.pngs.push_back(std::move(bytes));
    } else if (fastpipe::is_fpc(bytes.data(), bytes.size())) {
      seeds.fpcs.push_back(std::move(bytes));
    } else if (fastpipe::is_tiled(bytes.data(), bytes.size())) {
      seeds.tifs.push_back(std::move(bytes));
    }
  }
  if (seeds.jpegs.empty() && seeds.fpcs.empty() && seeds.pngs.empty() && seeds.tifs.empty())
    usage("the folders hold no JPEG, KEY.fpc, PNG or KEY.tif");
  return seeds;
}

enum class Kind { jpeg, fpc, png, tif };

// Of every eight inputs four are JPEGs, two KEY.fpcs, one is a PNG and one a KEY.tif; of kinds without seeds there are
// none.
Kind kind_of(const Seeds& seeds, std::uint64_t number) {
  if (number % 8 == 7 && !seeds.tifs.empty()) return Kind::tif;
  if (number % 4 == 3 && !seeds.pngs.empty()) return Kind::png;
  if (number % 4 == 1 && !seeds.fpcs.empty()) return Kind::fpc;
  if (!seeds.jpegs.empty()) return Kind::jpeg;
  if (!seeds.fpcs.empty()) return Kind::fpc;
  return seeds.pngs.empty() ? Kind::tif : Kind::png;
}

fuzz::Bytes make(fuzz::Random* random, const Seeds& seeds, Kind kind) {
  if (kind == Kind::png) return fuzz::make_png_input(random, seeds.pngs);
  if (kind == Kind::tif) return fuzz::make_tiled_input(random, seeds.tifs);
  if (kind == Kind::fpc) return fuzz::make_fpc_input(random, seeds.fpcs);
  return fuzz::make_input(random, seeds.jpegs);
}

double processor_seconds() {
  timespec now;
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Where Linux tells it of this program alone: getrusage counts what the process was before it became this one, too.
double peak_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::strtod(line.c_str() + 6, nullptr) * 1024 / 1e6;
  }
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
  return static_cast<double>(usage.ru_maxrss) / 1e6;
#else
  return static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
#endif
}

void say_which() {
  char line[160];
  const int length =
      std::snprintf(line, sizeof line, "\nfuzz: at input %llu of seed %llu: --seed %llu --first %llu\n",
                    static_cast<unsigned long long>(number_at_work), static_cast<unsigned long long>(seed_at_work),
                    static_cast<unsigned long long>(seed_at_work), static_cast<unsigned long long>(number_at_work));
  if (::write(STDERR_FILENO, line, static_cast<std::size_t>(length)) < 0) return;
}

void on_signal(int number) {
  say_which();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

void report_deaths() {
#if defined(__SANITIZE_ADDRESS__) || defined(FUZZ_SANITIZED)
  __sanitizer_set_death_callback(say_which);  // they catch the other signals themselves
#else
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(number, on_signal);
#endif
  for (const int number : {SIGABRT, SIGALRM}) std::signal(number, on_signal);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const Seeds seeds = read_seeds(options.folders);
  if (!options.write.empty()) {
    fuzz::Random random(options.seed, options.first);
    const fuzz::Bytes input = make(&random, seeds, kind_of(seeds, options.first));
    std::ofstream file(options.write, std::ios::binary);
    file.write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
    return file.flush() ? 0 : 2;
  }
  report_deaths();

  fuzz::RowTarget row;
  fuzz::CompareTarget compare;
  fuzz::TranscodeTarget transcode;
  fuzz::FpcTarget fpc;
  fuzz::PngTarget png;
  fuzz::TiledTarget tiled;
  fuzz::Tally tally;
  const double started = processor_seconds();
  double slowest = 0;
  std::uint64_t slowest_number = options.first, done = 0, wrong = 0;
  seed_at_work = options.seed;
  for (; done < options.count; ++done) {
    const double begun = processor_seconds();
    if (begun - started > options.seconds) break;
    number_at_work = options.first + done;
    ::alarm(kHangs);
    fuzz::Random random(options.seed, number_at_work);
    std::vector<std::string> problems;
    const Kind kind = kind_of(seeds, number_at_work);
    const fuzz::Bytes input = make(&random, seeds, kind);
    if (kind == Kind::png) {
      problems = {row.run_png(&random, input, &tally), png.run(&random, input, &tally)};
    } else if (kind == Kind::tif) {
      problems = {tiled.run(&random, input, &tally)};
    } else if (kind == Kind::fpc) {
      problems = {row.run_fpc(&random, input, &tally), fpc.run(&random, input, &tally)};
    } else {
      problems = {row.run(&random, input, &tally), compare.run(&random, input, &tally),
                  transcode.run(&random, input, &tally)};
    }
    for (const std::string& problem : problems) {
      if (problem.empty()) continue;
      ++wrong;
      std::printf("input %llu: %s\n", static_cast<unsigned long long>(number_at_work), problem.c_str());
    }
    const double took = processor_seconds() - begun;
    if (took > slowest) {
      slowest = took;
      slowest_number = number_at_work;
    }
  }
  ::alarm(0);
  const double memory = peak_mb();
  std::printf(
      "seed %llu: %llu inputs from %llu of %zu JPEGs, %zu KEY.fpcs, %zu PNGs and %zu KEY.tifs; %llu rows, %llu "
      "compared, "
      "%llu transcoded, %llu KEY.fpcs decoded, %llu PNGs and %llu KEY.tifs read; %llu wrong; "
      "slowest %.3f s (input %llu); peak memory %.0f MB\n",
      static_cast<unsigned long long>(options.seed), static_cast<unsigned long long>(done),
      static_cast<unsigned long long>(options.first), seeds.jpegs.size(), seeds.fpcs.size(), seeds.pngs.size(),
      seeds.tifs.size(), static_cast<unsigned long long>(tally.rows), static_cast<unsigned long long>(tally.compared),
      static_cast<unsigned long long>(tally.transcoded), static_cast<unsigned long long>(tally.coefficients),
      static_cast<unsigned long long>(tally.pngs), static_cast<unsigned long long>(tally.tifs),
      static_cast<unsigned long long>(wrong), slowest, static_cast<unsigned long long>(slowest_number), memory);
  const bool good = wrong == 0 && slowest <= options.most_seconds && memory <= static_cast<double>(options.most_mb);
  return good ? 0 : 1;
}
