#include "runtime/device/cuda/sensors.h"

#include <dlfcn.h>

namespace gradloom::cuda {
namespace {

// NVML's C interface, whose header is not in this toolkit: https://docs.nvidia.com/deploy/nvml-api. Every function returns 0 for success.
using NvmlDevice = struct NvmlDeviceOpaque*;
struct NvmlUtilization {
  unsigned gpu, memory;  // percent
};
struct NvmlMemory {
  unsigned long long total, free, used;  // bytes
};
constexpr int kTemperatureOfGpu = 0;

class Nvml {
 public:
  Nvml() {
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    int (*init)() = nullptr;
    const bool whole = Find(library, "nvmlInit_v2", init) && Find(library, "nvmlDeviceGetHandleByPciBusId_v2", by_bus) &&
                       Find(library, "nvmlDeviceGetUtilizationRates", utilization) &&
                       Find(library, "nvmlDeviceGetTemperature", temperature) && Find(library, "nvmlDeviceGetPowerUsage", power) &&
                       Find(library, "nvmlDeviceGetMemoryInfo", memory);
    works = whole && init() == 0;
  }

  bool works = false;
  int (*by_bus)(const char* bus, NvmlDevice* device) = nullptr;
  int (*utilization)(NvmlDevice device, NvmlUtilization* rates) = nullptr;
  int (*temperature)(NvmlDevice device, int sensor, unsigned* celsius) = nullptr;
  int (*power)(NvmlDevice device, unsigned* milliwatts) = nullptr;
  int (*memory)(NvmlDevice device, NvmlMemory* memory) = nullptr;

 private:
  template <typename F>
  static bool Find(void* library, const char* name, F*& function) {
    function = reinterpret_cast<F*>(dlsym(library, name));
    return function != nullptr;
  }
};

}  // namespace

void ReadSensors(DeviceProperties& device) {
  static const Nvml nvml;
  NvmlDevice handle = nullptr;
  if (!nvml.works || nvml.by_bus(device.pci_bus.c_str(), &handle) != 0) return;
  NvmlUtilization rates{};
  NvmlMemory memory{};
  unsigned celsius = 0, milliwatts = 0;
  if (nvml.memory(handle, &memory) == 0) device.memory_free_bytes = static_cast<int64_t>(memory.free);
  if (nvml.utilization(handle, &rates) == 0) device.busy_percent = static_cast<int>(rates.gpu);
  if (nvml.temperature(handle, kTemperatureOfGpu, &celsius) == 0) device.temperature_c = static_cast<int>(celsius);
  if (nvml.power(handle, &milliwatts) == 0) device.power_w = static_cast<int>(milliwatts / 1000);
}

}  // namespace gradloom::cuda
