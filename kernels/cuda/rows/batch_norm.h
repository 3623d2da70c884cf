// The launches of batch normalization's kernels.
#pragma once

#include <vector>

#include "kernels/catalog/kernel_work.h"

namespace gradloom {

// The launches of a call that one of CudaBatchNormRows() serves: a pass over the operands that sums over each channel, the sums of its
// parts, and a pass that computes each element from the channel's numbers and reads the operands again. What is between the passes may
// still be in a cache, which is not counted.
std::vector<KernelWork> WorkOfBatchNorm(const KernelCall& call);

}  // namespace gradloom
