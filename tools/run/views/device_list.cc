#include "tools/run/views/device_list.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/device/choose_devices.h"
#include "tools/run/records/environment.h"

namespace gradloom {
namespace {

nlohmann::json ToJson(const DeviceProperties& device) {
  nlohmann::json made = {{"id", "cuda:" + std::to_string(device.ordinal)},
                         {"name", device.name},
                         {"isa", "sm_" + std::to_string(device.compute_major * 10 + device.compute_minor)},
                         {"multiprocessors", device.multiprocessors},
                         {"memory_total_bytes", device.memory_total_bytes},
                         {"memory_free_bytes", device.memory_free_bytes},
                         {"l2_bytes", device.l2_bytes},
                         {"shared_bytes_per_block", device.shared_bytes_per_block},
                         {"memory_bus_bits", device.memory_bus_bits},
                         {"pci_bus", device.pci_bus},
                         {"uuid", device.uuid},
                         {"peers", device.peers}};
  for (const auto& [key, value] : {std::pair("busy_percent", device.busy_percent), std::pair("temperature_c", device.temperature_c),
                                   std::pair("power_w", device.power_w)}) {
    if (value >= 0) made[key] = value;
  }
  return made;
}

nlohmann::json VersionsJson(const PlatformVersions& v) {
  return {{"driver", v.driver}, {"runtime", v.runtime}, {"cublas", v.cublas}, {"cudnn", v.cudnn}, {"nccl", v.nccl}, {"nvrtc", v.nvrtc}};
}

}  // namespace

std::string DevicesJson() {
  const CpuDevice cpu = ThisCpu();
  const CudaDevices cuda = ThisMachinesCuda();
  DevicePlatform* const platform = CudaPlatform();
  nlohmann::json list = nlohmann::json::array({{{"id", "cpu"},
                                                {"name", cpu.name},
                                                {"cores", cpu.cores},
                                                {"isa", cpu.isa},
                                                {"bfloat16", cpu.bfloat16},
                                                {"memory_total_bytes", cpu.total_bytes},
                                                {"memory_free_bytes", cpu.free_bytes}}});
  for (const DeviceProperties& device : cuda.devices) list.push_back(ToJson(device));
  nlohmann::json all = {{"devices", list}};
  if (platform != nullptr) all["cuda"] = VersionsJson(platform->versions());
  if (!cuda.problem.empty()) all["no_cuda"] = cuda.problem;
  return all.dump();
}

}  // namespace gradloom
