// CUDA devices behind the interface of runtime/device: each call is one call of CUDA's runtime library, its answer checked.
#pragma once

#include <memory>
#include <span>

#include "runtime/device/device.h"

namespace gradloom::cuda {

// Opens a logical device. Throws Error(kDevice).
std::unique_ptr<Device> OpenDevice(int ordinal);

// As DevicePlatform::ShareRefusals; `readable`: all of them read each other's memory.
void ShareRefusals(std::span<Device* const> members, bool readable);

// Collectives by kernels of ours: members on one GPU, or on several that read each other's memory. Sums are made as a binary tree over the
// members, ((0 + 1) + (2 + 3)) + ..., as on the CPU.
std::unique_ptr<DeviceGroup> NewLocalGroup(std::span<Device* const> members);

}  // namespace gradloom::cuda
