// The devices of this machine, and the default devices to compile for.
#include <cstdio>
#include <mutex>
#include <string>

#include "runtime/api/guard.h"
#include "runtime/device/choose_devices.h"
#include "runtime/plan/device_spec.h"
#include "tools/api/compiler_table.h"
#include "tools/api/default_devices.h"
#include "tools/run/records/environment.h"
#include "tools/run/views/device_list.h"

namespace gradloom::api {
namespace {

// One per process; never destroyed, because it may be used until the process ends.
struct Default {
  std::mutex mutex;
  std::string devices;
};
Default& TheDefault() {
  static auto* const made = new Default;
  return *made;
}

GradloomStatus* SetDefaultDevices(const char* devices) {
  return Guarded([&] {
    const std::string text = TextOf(devices, "the devices");
    if (!text.empty()) ParseDevices(text);
    const std::lock_guard lock(TheDefault().mutex);
    TheDefault().devices = text;
  });
}

GradloomStatus* GetDefaultDevices(GradloomText** out) {
  return Guarded([&] {
    GradloomText*& text = Out(out);
    text = new GradloomText{DefaultDevices()};
  });
}

GradloomStatus* GetDevices(GradloomText** out) {
  return Guarded([&] {
    GradloomText*& text = Out(out);
    text = new GradloomText{DevicesJson()};
  });
}

GradloomStatus* GetDeviceCount(size_t* out) {
  return Guarded([&] { NotNull(out, "the output pointer for the result") = 1 + ThisMachinesCuda().devices.size(); });
}

template <size_t N>
void Put(const std::string& text, char (&place)[N]) {
  std::snprintf(place, N, "%s", text.c_str());
}

GradloomDeviceInfo InfoOf(const CpuDevice& cpu) {
  GradloomDeviceInfo info{};
  Put("cpu", info.device);
  Put(cpu.name, info.name);
  Put(cpu.isa, info.isa);
  info.units = cpu.cores;
  info.memory_total_bytes = cpu.total_bytes;
  info.memory_free_bytes = cpu.free_bytes;
  return info;
}

GradloomDeviceInfo InfoOf(const DeviceProperties& gpu) {
  GradloomDeviceInfo info{};
  Put("cuda:" + std::to_string(gpu.ordinal), info.device);
  Put(gpu.name, info.name);
  Put("sm_" + std::to_string(gpu.compute_major * 10 + gpu.compute_minor), info.isa);
  Put(gpu.uuid, info.uuid);
  info.units = gpu.multiprocessors;
  info.memory_total_bytes = gpu.memory_total_bytes;
  info.memory_free_bytes = gpu.memory_free_bytes;
  return info;
}

GradloomStatus* GetDeviceInfo(size_t index, GradloomDeviceInfo* out) {
  return Guarded([&] {
    NotNull(out, "the output pointer for the result");
    if (index == 0) return WriteResult(InfoOf(ThisCpu()), out);
    const CudaDevices cuda = ThisMachinesCuda();
    if (index > cuda.devices.size()) {
      throw Error(
          ErrorCode::kConfig,
          "device index " + std::to_string(index) + " is out of range: the number of devices is " + std::to_string(1 + cuda.devices.size()),
          "", cuda.problem);
    }
    WriteResult(InfoOf(cuda.devices[index - 1]), out);
  });
}

}  // namespace

std::string DefaultDevices() {
  const std::lock_guard lock(TheDefault().mutex);
  return TheDefault().devices;
}

void AddDevices(GradloomApi& api) {
  api.GetDevices = GetDevices;
  api.SetDefaultDevices = SetDefaultDevices;
  api.GetDefaultDevices = GetDefaultDevices;
  api.GetDeviceCount = GetDeviceCount;
  api.GetDeviceInfo = GetDeviceInfo;
}

}  // namespace gradloom::api
