// The devices of a configuration, and their threads.
#pragma once

#include <string>
#include <vector>

#include "runtime/exec/executor.h"
#include "runtime/plan/device_spec.h"
#include "tools/config/configuration.h"

namespace gradloom {

struct NamedDevices {
  DeviceSpec devices;
  std::string isa = "any";  // "sm_90"; "any" for the CPU
  std::string free;         // a line for a single process on GPUs that it does not use; "": none
};

// The configured devices as they exist on this machine, and their architecture; with --target, as configured. A line is added to `notes` if
// the CPU is used instead. Throws Error(kConfig), Error(kDevice).
NamedDevices DevicesOf(const Configuration& configuration, std::vector<std::string>& notes);

// The number of threads for all devices of a process: OMP_NUM_THREADS ("4", or "4,2" for nested levels), which launchers set; otherwise one
// per core, divided by the number of processes on this host. At most OMP_THREAD_LIMIT.
int ThreadsOfProcess(int processes);

// The number of threads of each of a single process's devices: as configured, or an equal share.
int ThreadsOfDevice(const Configuration& configuration, int devices);

// The number of threads for work before there is a plan, such as reading a model: of all devices of a process together.
int ThreadsOfReading(const Configuration& configuration);

// How an executor uses the configured devices. Throws as DevicesOf.
ExecutorOptions ExecutorOptionsOf(const Configuration& configuration);

}  // namespace gradloom
