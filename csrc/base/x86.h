// x86's vector instructions: their header, and the sets that kernels are written for.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

// GCC 12 warns of its own _mm512_undefined_epi32 (its bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define FASTPIPE_AVX2 __attribute__((target("avx2,bmi,bmi2,popcnt")))
#define FASTPIPE_AVX2_INLINE FASTPIPE_AVX2 __attribute__((always_inline)) inline
#define FASTPIPE_AVX512 __attribute__((target("avx512f,avx512bw")))
#define FASTPIPE_VBMI2 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,bmi,bmi2,lzcnt,popcnt")))

namespace fastpipe {

// Whether this machine has the instructions.
inline bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
         __builtin_cpu_supports("popcnt");
}
inline bool has_avx512() { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"); }
inline bool has_vbmi2() {
  return has_avx512() && has_avx2() && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
         __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("lzcnt");
}

}  // namespace fastpipe

#endif
