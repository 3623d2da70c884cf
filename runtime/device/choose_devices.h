// Chooses devices of this machine for the devices that a user names.
#pragma once

#include <span>
#include <string>

#include "runtime/device/device.h"
#include "runtime/plan/device_spec.h"

namespace gradloom {

// The CUDA devices of a machine.
struct CudaDevices {
  std::vector<DeviceProperties> devices;
  std::string problem;  // why there is none
  std::string visible;  // CUDA_VISIBLE_DEVICES, which renumbers them; empty: not set
};

// The CUDA devices that this process sees.
CudaDevices ThisMachinesCuda();

// Returns the specification with kind, count and ordinals that exist. `note` gets a line if the choice may surprise: the CPU instead of a
// GPU. Throws Error(kDevice) for devices that do not exist, naming those that do.
DeviceSpec ChooseDevices(const DeviceSpec& wanted, const CudaDevices& machine, std::string* note);

// The architecture of the chosen GPUs: "sm_90". Throws Error(kConfig) for several kinds.
std::string ArchitectureOf(const DeviceSpec& devices, const CudaDevices& machine);

// For process `local_rank` of the processes on a host, which all see the same GPUs and get one each: returns `wanted` with the GPU of that
// number. Returns it unchanged if GPUs are named, if all are wanted, and if this process sees one or none, as some launchers arrange it.
// Throws Error(kDevice) if there are fewer GPUs than processes.
DeviceSpec DeviceOfLocalRank(const DeviceSpec& wanted, int local_rank, const CudaDevices& machine);

// A note for a single process that uses one of several GPUs, naming the idle ones; "" if there is nothing to say, for example if the GPU
// was named.
std::string FreeDevicesNote(const DeviceSpec& wanted, const DeviceSpec& chosen, const CudaDevices& machine);

}  // namespace gradloom
