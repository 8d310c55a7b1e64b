#include "resize/resize_kernels.h"

namespace fastpipe {

std::vector<const ResizeKernels*> all_kernels() {
  std::vector<const ResizeKernels*> all;
  for (const ResizeKernels* kernels : {&kScalarKernels, neon_kernels(), avx2_kernels(), avx512_kernels()}) {
    if (kernels != nullptr) all.push_back(kernels);
  }
  return all;
}

const ResizeKernels* best_kernels() {
  static const ResizeKernels* const best = all_kernels().back();
  return best;
}

}  // namespace fastpipe
