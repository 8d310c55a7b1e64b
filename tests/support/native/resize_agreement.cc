// Resizes random pictures with every set of kernels that the machine has, and compares the bytes. Prints how many were
// compared and a checksum of them, which is the same on every machine. Usage: resize_agreement PICTURES
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "resize/resize.h"

namespace {

using fastpipe::Resizer;

std::uint32_t state = 1;

std::uint32_t random_below(std::uint32_t end) {
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  return state % end;
}

int side() { return 1 + static_cast<int>(random_below(random_below(2) == 0 ? 20 : 300)); }

}  // namespace

int main(int argc, char** argv) {
  const int pictures = argc > 1 ? std::atoi(argv[1]) : 0;
  std::uint64_t compared = 0, checksum = 14695981039346656037u;
  std::vector<Resizer> resizers;
  for (const fastpipe::ResizeKernels* kernels : fastpipe::all_kernels()) {
    std::fprintf(stderr, "%s\n", kernels->name);
    resizers.emplace_back(kernels);
  }
  for (int n = 0; n < pictures; ++n) {
    const fastpipe::Rect bounds = {0, 0, side(), side()};
    const fastpipe::Size out = {side(), side()};
    fastpipe::Box box = {0, 0, double(bounds.width), double(bounds.height)};
    if (random_below(2) == 0) box = {box.width * 0.3, box.height * 0.1, box.width * 0.55, box.height * 0.85};
    const bool flip = random_below(2) != 0;
    const auto interpolation = static_cast<fastpipe::Interpolation>(random_below(3));
    const fastpipe::Resampling resampling = {interpolation, random_below(4) != 0};
    const int channels[] = {1, 3, 3, 4};
    const fastpipe::PixelForm form = {channels[random_below(4)], random_below(4) == 0 ? 16 : 8};
    const int rows_at_once = 1 + static_cast<int>(random_below(9));
    std::vector<std::uint8_t> source;
    std::vector<std::vector<std::uint8_t>> results;
    for (Resizer& resizer : resizers) {
      const fastpipe::Rect region = resizer.plan(box, bounds, out, flip, resampling, form);
      const std::ptrdiff_t stride = region.width * form.bytes_decoded();
      const auto bytes = static_cast<std::size_t>(stride * region.height + fastpipe::kReadBeyond);
      while (source.size() < bytes) source.push_back(static_cast<std::uint8_t>(random_below(256)));
      for (int y = 0; y < region.height; y += rows_at_once) {
        const int count = std::min(rows_at_once, region.height - y);
        resizer.take(y, count, source.data() + y * stride, stride);
      }
      results.emplace_back(static_cast<std::size_t>(out.width) * out.height * form.bytes());
      resizer.finish({results.back().data(), out, static_cast<std::ptrdiff_t>(out.width) * form.bytes()});
      if (results.back() != results.front()) {
        std::fprintf(stderr, "picture %d: %d x %d -> %d x %d differs\n", n, bounds.width, bounds.height, out.width,
                     out.height);
        return 1;
      }
    }
    compared += results.front().size() * (results.size() - 1);
    for (const std::uint8_t byte : results.front()) checksum = (checksum ^ byte) * 1099511628211u;
  }
  std::printf("%llu %016llx\n", static_cast<unsigned long long>(compared), static_cast<unsigned long long>(checksum));
  return 0;
}
