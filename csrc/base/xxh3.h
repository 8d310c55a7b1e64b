// Bytes -> their XXH3-64 with seed 0, the hash that the index has of every JPEG.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastpipe {

// By the xxHash project's own header, third_party/xxhash.h.
std::uint64_t xxh3_64(const std::uint8_t* data, std::size_t size);

// The hash of bytes that come piece by piece.
class Xxh3Stream {
 public:
  Xxh3Stream();
  ~Xxh3Stream();
  Xxh3Stream(const Xxh3Stream&) = delete;
  Xxh3Stream& operator=(const Xxh3Stream&) = delete;

  void add(const std::uint8_t* data, std::size_t size);
  std::uint64_t digest() const;

 private:
  void* const state_;  // of the xxHash project
};

// The same with no instructions but those that every machine of its kind has.
std::uint64_t xxh3_64_everywhere(const std::uint8_t* data, std::size_t size);

}  // namespace fastpipe
