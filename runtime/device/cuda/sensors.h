// What NVIDIA's management library measures, where it is installed.
#pragma once

#include "runtime/device/device.h"

namespace gradloom::cuda {

// Fills memory_free_bytes, busy_percent, temperature_c and power_w of the device with this pci_bus; leaves them where they are not known.
void ReadSensors(DeviceProperties& device);

}  // namespace gradloom::cuda
