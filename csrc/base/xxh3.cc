#include "base/xxh3.h"

#include "base/x86.h"

#define XXH_INLINE_ALL
#if defined(__x86_64__)
// The header then also has its kernels for AVX2, which a machine may lack, and aligns its lanes as they need it.
#define XXH_X86DISPATCH
#define XXH_DISPATCH_AVX2 1
#define XXH_TARGET_AVX2 FASTPIPE_AVX2
#endif
#include "third_party/xxhash.h"

#include <new>

namespace fastpipe {
namespace {

#if defined(__x86_64__)
FASTPIPE_AVX2 std::uint64_t long_avx2(const std::uint8_t* data, std::size_t size) {
  return XXH3_hashLong_64b_internal(data, size, XXH3_kSecret, sizeof(XXH3_kSecret), XXH3_accumulate_512_avx2,
                                    XXH3_scrambleAcc_avx2);
}
#endif

}  // namespace

Xxh3Stream::Xxh3Stream() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_));
}

Xxh3Stream::~Xxh3Stream() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }

void Xxh3Stream::add(const std::uint8_t* data, std::size_t size) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state_), data, size);
}

std::uint64_t Xxh3Stream::digest() const { return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state_)); }

std::uint64_t xxh3_64_everywhere(const std::uint8_t* data, std::size_t size) { return XXH3_64bits(data, size); }

std::uint64_t xxh3_64(const std::uint8_t* data, std::size_t size) {
#if defined(__x86_64__)
  if (size > XXH3_MIDSIZE_MAX && has_avx2()) return long_avx2(data, size);
#endif
  return xxh3_64_everywhere(data, size);
}

}  // namespace fastpipe
