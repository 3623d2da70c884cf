// Fourier transforms.
#pragma once

#include <cstdint>

#include "kernels/catalog/kernel.h"

namespace gradloom::cuda_rows {

// The number of points of a DFT, or of a frame of an STFT, whose axis and length are constants.
int64_t TransformLength(const KernelCall& call);

}  // namespace gradloom::cuda_rows
