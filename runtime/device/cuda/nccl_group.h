// Collectives through NCCL, among GPUs of which each has one member.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "runtime/device/device.h"

namespace gradloom::cuda {

// All members are here. One communicator, used by this group alone. Throws Error(kDevice) with NCCL's words.
std::unique_ptr<DeviceGroup> NewNcclGroup(std::span<Device* const> members);

// As DevicePlatform::JoinGroup and NewGroupId.
std::unique_ptr<DeviceGroup> JoinNcclGroup(std::span<Device* const> members, const DistributedGroup& distributed);
std::string NewNcclId();

}  // namespace gradloom::cuda
