// Parses the names of devices that a user gives: "cpu", "cpu:4", "cuda:0,2", "auto".
#pragma once

#include <string>
#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom {

inline constexpr int kMaxDevices = 4096;

struct DeviceSpec {
  DeviceKind kind = DeviceKind::kCpu;
  int count = 1;              // number of devices, which share each batch; 0: all of this machine
  std::vector<int> ordinals;  // of CUDA devices, by rank; may repeat; empty: the first, or all
  bool best = false;          // "auto": a CUDA device if there is one
  bool else_cpu = false;      // the CPU if the named devices do not exist

  // "cpu:4", "cuda:0,2".
  std::string ToString() const;
};

// "cpu": one device with all cores that the process may use. "cpu:N": N devices that divide the cores. "cuda": the first GPU. "cuda:all":
// all GPUs. "cuda:0,2", or "cuda:0,cuda:2": these GPUs. ",else=cpu" may follow a GPU. "auto": the best device there is. Does not look at
// this machine; runtime/device/choose_devices.h does. Throws Error(kConfig) for a text that names no devices, or several kinds.
DeviceSpec ParseDevices(const std::string& text);

// The index of the device that a text names: "cpu:1" is the second device, of whatever kind; "cuda:3" is the GPU of that number, if it
// occurs once among them. Below kMaxDevices; -1 for a text that does not name a single device.
int ParseDeviceIndex(const std::string& text, const DeviceSpec& devices);

}  // namespace gradloom
