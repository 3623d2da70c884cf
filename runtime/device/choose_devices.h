// From the devices that a person names to those of a machine.
#pragma once

#include <span>
#include <string>

#include "runtime/device/device.h"
#include "runtime/plan/device_spec.h"

namespace gradloom {

// What a machine has of CUDA.
struct CudaDevices {
  std::vector<DeviceProperties> devices;
  std::string problem;  // why there is none
  std::string visible;  // CUDA_VISIBLE_DEVICES, which renumbers them; empty: not set
};

// Of this process.
CudaDevices ThisMachinesCuda();

// The specification with kind, count and ordinals that are there. `note` gets a line where another choice was made than somebody might
// expect: the CPU instead of a GPU. Throws Error(kDevice) for devices that are not there, naming those that are.
DeviceSpec ChooseDevices(const DeviceSpec& wanted, const CudaDevices& machine, std::string* note);

// What the chosen GPUs are: "sm_90". Throws Error(kConfig) for several kinds.
std::string ArchitectureOf(const DeviceSpec& devices, const CudaDevices& machine);

// For the process `local_rank` of those of a host, which all see the same GPUs and are to have one each: `wanted`, with the GPU of that
// number. As it is where GPUs are named, where all are wanted, and where this process sees one or none, as launchers may have it. Throws
// Error(kDevice) where there are fewer GPUs than processes.
DeviceSpec DeviceOfLocalRank(const DeviceSpec& wanted, int local_rank, const CudaDevices& machine);

// One line for a process that is alone and takes one of several GPUs of which the others have nothing to do either; "" where there is
// nothing to say, as where the GPU was named.
std::string FreeDevicesNote(const DeviceSpec& wanted, const DeviceSpec& chosen, const CudaDevices& machine);

}  // namespace gradloom
