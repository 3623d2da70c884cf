// The devices that a person names: "cpu", "cpu:4", "cuda:0,2", "auto".
#pragma once

#include <string>
#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom {

inline constexpr int kMaxDevices = 4096;

struct DeviceSpec {
  DeviceKind kind = DeviceKind::kCpu;
  int count = 1;              // that share each batch; 0: all there are
  std::vector<int> ordinals;  // of CUDA devices, by rank; one may stand there several times; empty: the first, or all
  bool best = false;          // "auto": a CUDA device where there is one
  bool else_cpu = false;      // the CPU where the named ones are not there

  // "cpu:4", "cuda:0,2".
  std::string ToString() const;
};

// "cpu": one device with all cores that the process may use. "cpu:N": N devices that divide them. "cuda": the first GPU. "cuda:all".
// "cuda:0,2", or "cuda:0,cuda:2": these. Behind them ",else=cpu". "auto": the best there is. Nothing is said of what this machine has: see
// runtime/device/choose_devices.h. Throws Error(kConfig) for a text that names no devices, or several kinds.
DeviceSpec ParseDevices(const std::string& text);

// Which of the devices a text names: "cpu:1" is the second of them, whatever they are; "cuda:3" the GPU of that number, where it is one of
// them once. Below kMaxDevices; -1 for a text that names no single device.
int ParseDeviceIndex(const std::string& text, const DeviceSpec& devices);

}  // namespace gradloom
