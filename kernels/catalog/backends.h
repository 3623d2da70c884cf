// The functions that return the kernel rows of each device. They are defined beside the kernels, which depend on the types here, not the
// catalog on them.
#pragma once

#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/catalog/kernel_work.h"

namespace gradloom {

// The CPU's rows, except the reference kernels, in the order in which they are tried: kernels/cpu.
std::vector<const KernelRow*> CpuKernelRows();

// A row "reference.NAME" (own operators: "reference.gradloom.NAME") for each reference kernel: kernels/reference.
std::vector<const KernelRow*> ReferenceKernelRows();

// The CUDA device's rows, even in a build without a toolkit: kernels/cuda/rows.
std::vector<const KernelRow*> CudaKernelRows();

// WorkOf for the CPU's rows, including the reference kernels: kernels/cpu.
std::vector<KernelWork> CpuWorkOf(const KernelRow& row, const KernelCall& call, const KernelWork& least);

// WorkOf for the CUDA device's rows.
std::vector<KernelWork> CudaWorkOf(const KernelRow& row, const KernelCall& call, const KernelWork& least);

}  // namespace gradloom
