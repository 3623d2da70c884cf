// A fake of NVIDIA's management library for runtime/device/cuda/sensors.cc: GPU 1 is hot and half full, the others are idle.
#include <cstdlib>

namespace {

// "00000000:01:00.0" is the PCI bus id of the emulated GPU 1. A handle is the GPU's number plus one.
long NumberOf(void* device) { return reinterpret_cast<long>(device) - 1; }

}  // namespace

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  *device = reinterpret_cast<void*>(std::strtol(bus + 9, nullptr, 16) + 1);
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned* rates) {
  rates[0] = NumberOf(device) == 1 ? 97 : 0;
  rates[1] = 0;
  return 0;
}
int nvmlDeviceGetTemperature(void* device, int, unsigned* celsius) {
  *celsius = NumberOf(device) == 1 ? 81 : 30;
  return 0;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  *milliwatts = NumberOf(device) == 1 ? 650500 : 70000;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  memory[0] = 8ull << 30;
  memory[1] = NumberOf(device) == 1 ? 4ull << 30 : 8ull << 30;
  memory[2] = memory[0] - memory[1];
  return 0;
}

}  // extern "C"
