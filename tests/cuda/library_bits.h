// Trainings by plans that give CUDA's libraries the same products or the same attention in other layouts.
#pragma once

#include <map>
#include <string>

#include "tests/passes/small_training.h"

namespace gradloom {

// The emulated libraries give the same bits in every layout. The real ones may choose other algorithms, which add in another order: then
// each tensor is compared with the tolerance relative to its largest element.
inline void ExpectSameBitsOfLibraries(const std::map<std::string, Tensor>& want, const std::map<std::string, Tensor>& got,
                                      [[maybe_unused]] double tolerance) {
#ifdef ON_GPU
  ExpectNear(want, got, tolerance);
#else
  ExpectSameBits(want, got);
#endif
}

}  // namespace gradloom
