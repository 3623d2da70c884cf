// Fourier transforms.
#pragma once

#include <cstdint>

#include "kernels/catalog/kernel.h"

namespace gradloom::cuda_rows {

// How many points a DFT or a frame of an STFT is over; its axis and its length are known.
int64_t TransformLength(const KernelCall& call);

}  // namespace gradloom::cuda_rows
