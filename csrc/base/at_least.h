// Memory that is kept from picture to picture and only grows: a vector that shrank and grew again would be filled with
// zeros that nobody reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fastpipe {

template <typename Element>
Element* at_least(std::vector<Element>* memory, std::size_t count) {
  if (memory->size() < count) memory->resize(count);
  return memory->data();
}

// The first element at a multiple of 64 bytes (a cache line, the widest vector), with room for `count` from there.
template <typename Element>
Element* aligned_at_least(std::vector<Element>* memory, std::size_t count) {
  constexpr std::size_t kAlignment = 64;
  Element* const first = at_least(memory, count + kAlignment / sizeof(Element));
  return first + (kAlignment - reinterpret_cast<std::uintptr_t>(first) % kAlignment) % kAlignment / sizeof(Element);
}

}  // namespace fastpipe
