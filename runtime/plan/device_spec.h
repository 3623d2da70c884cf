// The devices that a person names: "cpu", "cpu:4", "auto".
#pragma once

#include <string>

#include "kernels/catalog/kernel.h"

namespace gradloom {

inline constexpr int kMaxDevices = 4096;

struct DeviceSpec {
  DeviceKind kind = DeviceKind::kCpu;
  int count = 1;  // that share each batch
};

// "cpu": one device with all cores that the process may use. "cpu:N": N devices that divide them. "auto": the best there is.
// Throws Error(kConfig) for a text that names no devices, Error(kUnsupported) for devices that this build does not know.
DeviceSpec ParseDevices(const std::string& text);

// The index in "cpu:1", below kMaxDevices; -1 for a text that names no single device.
int ParseDeviceIndex(const std::string& text);

}  // namespace gradloom
