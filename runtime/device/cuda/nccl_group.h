// Collectives through NCCL, among GPUs of which each has one member.
#pragma once

#include <memory>
#include <span>

#include "runtime/device/device.h"

namespace gradloom::cuda {

// One communicator, used by this group alone. Throws Error(kDevice) with NCCL's words.
std::unique_ptr<DeviceGroup> NewNcclGroup(std::span<Device* const> members);

}  // namespace gradloom::cuda
