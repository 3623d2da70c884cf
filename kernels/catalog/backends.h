// Where the rows of each device come from: declared here, defined beside the kernels of that device.
#pragma once

#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// The CPU's rows but for the reference kernels, in the order in which they are tried: kernels/cpu.
std::vector<const KernelRow*> CpuKernelRows();

// The CUDA device's rows, whether this build has a toolkit or not: kernels/cuda/rows.
std::vector<const KernelRow*> CudaKernelRows();

}  // namespace gradloom
