#include "jpeg/transcode/optimal_huffman.h"

#include <algorithm>
#include <cstddef>

namespace fastpipe {
namespace {

constexpr std::size_t kSymbols = 257;  // the last one stands for the code of all ones
constexpr std::size_t kMostNodes = 2 * kSymbols - 1;

// A tree that is still to be merged with another, in the order in which that happens: the rarest first, of those as
// rare the one of the larger symbol. A merged tree goes by the symbol of its first part.
struct Tree {
  std::uint64_t key;
  std::size_t node;

  static std::uint64_t key_of(std::uint64_t occurrences, std::uint64_t symbol) {
    return occurrences << 9 | (kSymbols - symbol);
  }
  std::uint64_t occurrences() const { return key >> 9; }
  std::uint64_t symbol() const { return kSymbols - (key & 511); }
  bool operator<(const Tree& other) const { return key < other.key; }
};

// Trees in order. A merged tree is at least as frequent as all before it, so it goes to the end, or near it.
struct Queue {
  std::array<Tree, kSymbols> trees;
  std::size_t next = 0, end = 0;

  std::size_t left() const { return end - next; }
  void push(const Tree& tree) {
    std::size_t at = end++;
    for (; at > next && tree < trees[at - 1]; --at) trees[at] = trees[at - 1];
    trees[at] = tree;
  }
};

Tree take_first(Queue* leaves, Queue* merged) {
  const bool from_leaves =
      merged->left() == 0 || (leaves->left() > 0 && leaves->trees[leaves->next] < merged->trees[merged->next]);
  Queue* const queue = from_leaves ? leaves : merged;
  return queue->trees[queue->next++];
}

// Of each symbol, the length that its code would have without a limit; 0 where it has none.
std::array<int, kSymbols> unlimited_lengths(const std::uint64_t* occurrences) {
  Queue leaves, merged;
  for (std::size_t symbol = 0; symbol + 1 < kSymbols; ++symbol) {
    if (occurrences[symbol] == 0) continue;
    leaves.trees[leaves.end++] = {Tree::key_of(occurrences[symbol], symbol), symbol};
  }
  leaves.trees[leaves.end++] = {Tree::key_of(1, kSymbols - 1), kSymbols - 1};
  std::sort(leaves.trees.begin(), leaves.trees.begin() + leaves.end);

  std::array<std::size_t, kMostNodes> parent = {};
  std::size_t nodes = kSymbols;  // the first ones are the leaves
  while (leaves.left() + merged.left() > 1) {
    const Tree first = take_first(&leaves, &merged), second = take_first(&leaves, &merged);
    parent[first.node] = parent[second.node] = nodes;
    merged.push({Tree::key_of(first.occurrences() + second.occurrences(), first.symbol()), nodes});
    ++nodes;
  }

  std::array<int, kMostNodes> depth = {};
  for (std::size_t node = nodes - 1; node-- > 0;) {
    if (parent[node] != 0) depth[node] = depth[parent[node]] + 1;
  }
  std::array<int, kSymbols> lengths;
  std::copy_n(depth.begin(), kSymbols, lengths.begin());
  return lengths;
}

}  // namespace

HuffmanCode optimal_code(const std::uint64_t* occurrences) {
  const std::array<int, kSymbols> lengths = unlimited_lengths(occurrences);
  std::array<int, kSymbols + 1> counts = {};
  for (const int length : lengths) ++counts[static_cast<std::size_t>(length)];
  counts[0] = 0;

  // Shorter codes first, of those as long the smaller symbol.
  HuffmanCode code;
  std::array<int, kSymbols + 1> next = {};
  for (std::size_t length = 1; length < next.size() - 1; ++length) next[length + 1] = next[length] + counts[length];
  for (std::size_t symbol = 0; symbol + 1 < kSymbols; ++symbol) {
    const auto length = static_cast<std::size_t>(lengths[symbol]);
    if (length == 0) continue;
    code.symbols[static_cast<std::size_t>(next[length]++)] = static_cast<std::uint8_t>(symbol);
    ++code.size;
  }

  // Two codes too long become a shorter one, and a short one two longer ones (T.81, figure K.3).
  constexpr std::size_t kMost = HuffmanCode::kMostBits;
  for (std::size_t length = counts.size() - 1; length > kMost; --length) {
    while (counts[length] > 0) {
      std::size_t shorter = length - 2;
      while (counts[shorter] == 0) --shorter;
      counts[length] -= 2;
      counts[length - 1] += 1;
      counts[shorter + 1] += 2;
      counts[shorter] -= 1;
    }
  }
  std::size_t longest = kMost;
  while (counts[longest] == 0) --longest;
  --counts[longest];  // all ones
  for (std::size_t length = 1; length <= kMost; ++length) {
    code.counts[length] = static_cast<std::uint8_t>(counts[length]);
  }
  return code;
}

}  // namespace fastpipe
