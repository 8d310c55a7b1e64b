#include "jpeg/decode/color.h"

namespace fastpipe {

std::vector<const ColorKernels*> all_color_kernels() {
  std::vector<const ColorKernels*> all;
  for (const ColorKernels* kernels : {&kScalarColor, neon_color(), avx2_color(), avx512_color()}) {
    if (kernels != nullptr) all.push_back(kernels);
  }
  return all;
}

const ColorKernels* best_color_kernels() {
  static const ColorKernels* const best = all_color_kernels().back();
  return best;
}

}  // namespace fastpipe
