// The families of reference kernels, one or a few files each. The split is that of compiler/ops.
#pragma once

#include <span>

#include "kernels/reference/reference.h"

namespace gradloom {

std::span<const ReferenceKernel> ReferencePointwise();
std::span<const ReferenceKernel> ReferenceMatMul();
std::span<const ReferenceKernel> ReferenceReduce();
std::span<const ReferenceKernel> ReferenceShape();
std::span<const ReferenceKernel> ReferenceConvolution();
std::span<const ReferenceKernel> ReferencePooling();
std::span<const ReferenceKernel> ReferenceNormalization();  // softmax and dropout too
std::span<const ReferenceKernel> ReferenceLoss();
std::span<const ReferenceKernel> ReferenceOptimizer();

}  // namespace gradloom
