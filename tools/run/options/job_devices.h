// The GPUs of a job: those that each process takes on its host, and the combined list.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/job_topology.h"
#include "runtime/device/choose_devices.h"

namespace gradloom {

// The devices of a process: GPUs, or one CPU device if there is no GPU and `auto` or `else=cpu` was given.
struct OwnDevices {
  DeviceSpec devices;
  std::string isa;               // "sm_90"; "" for the CPU
  std::vector<std::string> ids;  // ids of the physical GPUs, by device
  std::string note;              // why the CPU is used; "" otherwise

  // Serialized for the other processes.
  std::string ToText() const;
  static OwnDevices FromText(const std::string& text);
};

// The devices of this process according to `wanted`. If all processes of the host see the same GPUs, the process takes the one of its local
// rank. Throws Error(kDevice, kConfig).
OwnDevices TakeOwnDevices(const DeviceSpec& wanted, const JobTopology& topology, const CudaDevices& machine);

// Combines the devices of all processes, in order of rank, into one list for the plan. Throws Error(kConfig, kDevice) naming the processes
// if they do not match.
OwnDevices CombineDevices(const std::vector<OwnDevices>& all, const std::vector<std::string>& names);

}  // namespace gradloom
