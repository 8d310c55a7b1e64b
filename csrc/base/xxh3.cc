#include "base/xxh3.h"

#include <array>
#include <cstring>

#include "base/x86.h"

namespace fastpipe {
namespace {

using std::uint32_t;
using std::uint64_t;
using std::uint8_t;

constexpr uint64_t kPrime32a = 0x9E3779B1, kPrime32b = 0x85EBCA77, kPrime32c = 0xC2B2AE3D;
constexpr uint64_t kPrime64a = 0x9E3779B185EBCA87, kPrime64b = 0xC2B2AE3D27D4EB4F, kPrime64c = 0x165667B19E3779F9;
constexpr uint64_t kPrime64d = 0x85EBCA77C2B2AE63, kPrime64e = 0x27D4EB2F165667C5;
constexpr uint64_t kMixA = 0x165667919E3779F9, kMixB = 0x9FB21C651E98DF25;

// The specification's default secret.
constexpr std::size_t kSecretBytes = 192;
alignas(32) constexpr uint8_t kSecret[kSecretBytes] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4,
    0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e,
    0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43,
    0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
    0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19,
    0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7,
    0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78,
    0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16,
    0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
    0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};

// A long input is taken in stripes, each with the secret eight bytes further on; a block is as many as the secret has
// room for.
constexpr std::size_t kStripe = 64, kSecretStep = 8;
constexpr std::size_t kBlock = (kSecretBytes - kStripe) / kSecretStep * kStripe;

using Lanes = std::array<uint64_t, 8>;

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the loads below and the shards' index are little-endian");

uint64_t load64(const uint8_t* from) {
  uint64_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

uint64_t load32(const uint8_t* from) {
  uint32_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

uint64_t secret64(std::size_t at) { return load64(kSecret + at); }

uint64_t rotate_left(uint64_t value, int by) { return value << by | value >> (64 - by); }

// Both halves of the product, one over the other.
uint64_t multiply_fold(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = Wide{a} * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t avalanche(uint64_t hash) {
  hash ^= hash >> 37;
  hash *= kMixA;
  return hash ^ hash >> 32;
}

// XXH64's, for the shortest inputs.
uint64_t strong_avalanche(uint64_t hash) {
  hash ^= hash >> 33;
  hash *= kPrime64b;
  hash ^= hash >> 29;
  hash *= kPrime64c;
  return hash ^ hash >> 32;
}

uint64_t up_to_3(const uint8_t* data, std::size_t size) {
  if (size == 0) return strong_avalanche(secret64(56) ^ secret64(64));
  const uint64_t first = data[0], middle = data[size / 2], last = data[size - 1];
  const uint64_t joined = first << 16 | middle << 24 | last | uint64_t{size} << 8;
  return strong_avalanche(joined ^ load32(kSecret) ^ load32(kSecret + 4));
}

uint64_t from_4_to_8(const uint8_t* data, std::size_t size) {
  uint64_t hash = load32(data + size - 4) | load32(data) << 32;
  hash ^= secret64(8) ^ secret64(16);
  hash ^= rotate_left(hash, 49) ^ rotate_left(hash, 24);
  hash *= kMixB;
  hash ^= (hash >> 35) + size;
  hash *= kMixB;
  return hash ^ hash >> 28;
}

uint64_t from_9_to_16(const uint8_t* data, std::size_t size) {
  const uint64_t low = load64(data) ^ secret64(24) ^ secret64(32);
  const uint64_t high = load64(data + size - 8) ^ secret64(40) ^ secret64(48);
  return avalanche(size + __builtin_bswap64(low) + high + multiply_fold(low, high));
}

uint64_t mix16(const uint8_t* data, std::size_t secret_at) {
  return multiply_fold(load64(data) ^ secret64(secret_at), load64(data + 8) ^ secret64(secret_at + 8));
}

// Pairs of 16 bytes, from both ends to the middle.
uint64_t from_17_to_128(const uint8_t* data, std::size_t size) {
  uint64_t hash = size * kPrime64a;
  for (std::size_t i = (size - 1) / 32 + 1; i-- > 0;) {
    hash += mix16(data + 16 * i, 32 * i);
    hash += mix16(data + size - 16 * (i + 1), 32 * i + 16);
  }
  return avalanche(hash);
}

uint64_t from_129_to_240(const uint8_t* data, std::size_t size) {
  uint64_t hash = size * kPrime64a;
  for (std::size_t i = 0; i < 8; ++i) hash += mix16(data + 16 * i, 16 * i);
  hash = avalanche(hash);
  for (std::size_t i = 8; i < size / 16; ++i) hash += mix16(data + 16 * i, 16 * (i - 8) + 3);
  return avalanche(hash + mix16(data + size - 16, 136 - 17));
}

uint64_t merge(const Lanes& lanes, std::size_t size) {
  uint64_t hash = size * kPrime64a;
  for (std::size_t i = 0; i < 4; ++i) {
    hash += multiply_fold(lanes[2 * i] ^ secret64(11 + 16 * i), lanes[2 * i + 1] ^ secret64(19 + 16 * i));
  }
  return avalanche(hash);
}

constexpr Lanes kStart = {kPrime32c, kPrime64a, kPrime64b, kPrime64c, kPrime64d, kPrime32b, kPrime64e, kPrime32a};
// Where in the secret the scrambling after a block, and the last stripe, begin.
constexpr std::size_t kScrambleAt = kSecretBytes - kStripe, kLastAt = kScrambleAt - 7;

struct ScalarLanes {
  Lanes lanes = kStart;

  void add(const uint8_t* stripe, std::size_t secret_at) {
    for (std::size_t i = 0; i < 8; ++i) {
      const uint64_t value = load64(stripe + 8 * i);
      const uint64_t keyed = value ^ secret64(secret_at + 8 * i);
      lanes[i ^ 1] += value;
      lanes[i] += (keyed & 0xFFFFFFFF) * (keyed >> 32);
    }
  }

  void scramble() {
    for (std::size_t i = 0; i < 8; ++i) {
      lanes[i] ^= lanes[i] >> 47 ^ secret64(kScrambleAt + 8 * i);
      lanes[i] *= kPrime32a;
    }
  }
};

uint64_t long_scalar(const uint8_t* data, std::size_t size) {
  ScalarLanes state;
  const uint8_t* const end = data + size;
  const uint8_t* const last = end - kStripe;
  for (; static_cast<std::size_t>(end - data) > kBlock; data += kBlock) {
    for (std::size_t at = 0; at < kBlock; at += kStripe) state.add(data + at, at / kStripe * kSecretStep);
    state.scramble();
  }
  for (std::size_t at = 0; data + at < last; at += kStripe) state.add(data + at, at / kStripe * kSecretStep);
  state.add(last, kLastAt);
  return merge(state.lanes, size);
}

uint64_t up_to_240(const uint8_t* data, std::size_t size) {
  if (size <= 3) return up_to_3(data, size);
  if (size <= 8) return from_4_to_8(data, size);
  if (size <= 16) return from_9_to_16(data, size);
  if (size <= 128) return from_17_to_128(data, size);
  return from_129_to_240(data, size);
}

#if defined(__x86_64__)
FASTPIPE_AVX2_INLINE __m256i load(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

// Four lanes and their part of a stripe.
FASTPIPE_AVX2_INLINE __m256i added(__m256i lanes, const uint8_t* data, const uint8_t* secret) {
  const __m256i value = load(data);
  const __m256i keyed = _mm256_xor_si256(value, load(secret));
  const __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
  const __m256i neighbours = _mm256_shuffle_epi32(value, _MM_SHUFFLE(1, 0, 3, 2));
  return _mm256_add_epi64(lanes, _mm256_add_epi64(product, neighbours));
}

FASTPIPE_AVX2_INLINE __m256i scrambled(__m256i lanes, const uint8_t* secret) {
  const __m256i prime = _mm256_set1_epi64x(static_cast<long long>(kPrime32a));
  lanes = _mm256_xor_si256(_mm256_xor_si256(lanes, _mm256_srli_epi64(lanes, 47)), load(secret));
  const __m256i upper = _mm256_mul_epu32(_mm256_srli_epi64(lanes, 32), prime);
  return _mm256_add_epi64(_mm256_mul_epu32(lanes, prime), _mm256_slli_epi64(upper, 32));
}

FASTPIPE_AVX2 uint64_t long_avx2(const uint8_t* data, std::size_t size) {
  Lanes lanes = kStart;
  auto* const memory = reinterpret_cast<__m256i*>(lanes.data());
  __m256i low = _mm256_loadu_si256(memory), high = _mm256_loadu_si256(memory + 1);
  const uint8_t* const end = data + size;
  const uint8_t* const last = end - kStripe;
  for (; static_cast<std::size_t>(end - data) > kBlock; data += kBlock) {
    for (std::size_t at = 0; at < kBlock; at += kStripe) {
      const uint8_t* const secret = kSecret + at / kStripe * kSecretStep;
      low = added(low, data + at, secret);
      high = added(high, data + at + 32, secret + 32);
    }
    low = scrambled(low, kSecret + kScrambleAt);
    high = scrambled(high, kSecret + kScrambleAt + 32);
  }
  for (std::size_t at = 0; data + at < last; at += kStripe) {
    const uint8_t* const secret = kSecret + at / kStripe * kSecretStep;
    low = added(low, data + at, secret);
    high = added(high, data + at + 32, secret + 32);
  }
  low = added(low, last, kSecret + kLastAt);
  high = added(high, last + 32, kSecret + kLastAt + 32);
  _mm256_storeu_si256(memory, low);
  _mm256_storeu_si256(memory + 1, high);
  return merge(lanes, size);
}
#endif

}  // namespace

std::uint64_t xxh3_64_scalar(const std::uint8_t* data, std::size_t size) {
  return size <= 240 ? up_to_240(data, size) : long_scalar(data, size);
}

std::uint64_t xxh3_64(const std::uint8_t* data, std::size_t size) {
#if defined(__x86_64__)
  if (size > 240 && has_avx2()) return long_avx2(data, size);
#endif
  return xxh3_64_scalar(data, size);
}

}  // namespace fastpipe
