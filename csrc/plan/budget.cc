#include "plan/budget.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

namespace fastpipe {
namespace {

constexpr std::int64_t kLargeShare = 8;

// The samples in the order in which they are taken. Note [best fit]
std::vector<std::size_t> order_of(const std::int64_t* sizes, std::size_t count, std::int64_t budget) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::int64_t least = (budget + kLargeShare - 1) / kLargeShare;
  const auto rest =
      std::stable_partition(order.begin(), order.end(), [&](std::size_t sample) { return sizes[sample] >= least; });
  std::stable_sort(order.begin(), rest, [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  return order;
}

}  // namespace

std::int64_t fill_batches(const std::int64_t* sizes, std::size_t count, std::int64_t budget, std::int64_t most,
                          std::int64_t* batches) {
  std::set<std::pair<std::int64_t, std::int64_t>> open;  // what is left of a batch, its number
  std::vector<std::int64_t> counts;                      // samples of each batch
  for (const std::size_t sample : order_of(sizes, count, budget)) {
    const std::int64_t size = sizes[sample];
    std::int64_t left = budget, batch = static_cast<std::int64_t>(counts.size());
    const auto fullest = open.lower_bound({size, 0});
    if (fullest == open.end()) {
      counts.push_back(0);
    } else {
      left = fullest->first;
      batch = fullest->second;
      open.erase(fullest);
    }
    batches[sample] = batch;
    left -= size;
    if (++counts[static_cast<std::size_t>(batch)] < most && left > 0) open.insert({left, batch});
  }
  return static_cast<std::int64_t>(counts.size());
}

}  // namespace fastpipe
