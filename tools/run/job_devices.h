// The GPUs of a job: what each of its processes takes of its host, and what all come to.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/job_topology.h"
#include "runtime/device/choose_devices.h"

namespace gradloom {

// What a process takes: GPUs, or one CPU device where there is none and `auto` or `else=cpu` was said.
struct OwnDevices {
  DeviceSpec devices;
  std::string isa;               // "sm_90"; "" of the CPU
  std::vector<std::string> ids;  // of the physical GPUs, by device
  std::string note;              // why it is the CPU; ""

  // As one process tells the others.
  std::string ToText() const;
  static OwnDevices FromText(const std::string& text);
};

// Of `wanted`, which is for this process: one of the GPUs that all processes of the host see is that of the local rank. Throws
// Error(kDevice, kConfig).
OwnDevices TakeOwnDevices(const DeviceSpec& wanted, const JobTopology& topology, const CudaDevices& machine);

// The devices of all processes, in their order, as one list: what the plan is made for. Throws Error(kConfig, kDevice) where they do not
// fit together, naming the processes.
OwnDevices CombineDevices(const std::vector<OwnDevices>& all, const std::vector<std::string>& names);

}  // namespace gradloom
