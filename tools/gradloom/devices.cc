// gradloom devices: the devices of this machine, and the memory that a run holds on them.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/device/choose_devices.h"
#include "tools/gradloom/verbs.h"
#include "tools/run/records/environment.h"
#include "tools/run/train/run_folder.h"
#include "tools/run/views/device_list.h"
#include "tools/screen/screen.h"

namespace gradloom {
namespace {

void PrintHeld(const nlohmann::json& held) {
  const auto bytes = [](const nlohmann::json& device, const char* key) { return Bytes(device.value(key, int64_t{0})); };
  std::printf("process %lld, after step %lld\n", static_cast<long long>(held.value("process", int64_t{0})),
              static_cast<long long>(held.value("step", int64_t{0})));
  for (const nlohmann::json& device : held.value("devices", nlohmann::json::array())) {
    std::printf("%s  %s allocated  %s cached  %s free\n", Escaped(device.value("id", "")).c_str(), bytes(device, "allocated_bytes").c_str(),
                bytes(device, "cached_bytes").c_str(), bytes(device, "free_bytes").c_str());
  }
}

// Prints the run's last memory record.
int DevicesOf(const std::string& run, bool json) {
  const std::string path = RunFolder::Open(run).File("memory.json");
  if (std::error_code error; !std::filesystem::exists(path, error)) {
    throw Error(ErrorCode::kData, "the run has no record of its memory yet", Escaped(run, 4096),
                "the record is written after the first step; train the run further");
  }
  try {
    const nlohmann::json held = nlohmann::json::parse(ReadWholeFile(path));
    json ? void(std::printf("%s\n", held.dump().c_str())) : PrintHeld(held);
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorCode::kData, "not a memory record", Escaped(path, 4096),
                "the record is written after the first step; train the run further");
  }
  return 0;
}

// "13.0" for 13000.
std::string Version(int number) { return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10); }

void PrintDevice(size_t number, const DeviceProperties& device) {
  std::printf("%zu. %s  cuda:%d  sm_%d, %d multiprocessors  %s, %s free  %s\n", number, device.name.c_str(), device.ordinal,
              device.compute_major * 10 + device.compute_minor, device.multiprocessors, Bytes(device.memory_total_bytes).c_str(),
              Bytes(device.memory_free_bytes).c_str(), device.pci_bus.c_str());
  if (device.busy_percent >= 0) std::printf("   %d %% busy, %d C, %d W\n", device.busy_percent, device.temperature_c, device.power_w);
  if (device.peers.empty()) return;
  std::printf("   peer access to");
  for (int peer : device.peers) std::printf(" cuda:%d", peer);
  std::printf("\n");
}

int Devices(bool json) {
  const CpuDevice cpu = ThisCpu();
  const CudaDevices cuda = ThisMachinesCuda();
  DevicePlatform* const platform = CudaPlatform();
  if (json) {
    std::printf("%s\n", DevicesJson().c_str());
    return 0;
  }
  std::printf("%zu %s found\n", 1 + cuda.devices.size(), cuda.devices.empty() ? "device" : "devices");
  std::printf("1. %s  cpu  %s  %s, %s free\n", cpu.name.c_str(), CoresText(cpu).c_str(), Bytes(cpu.total_bytes).c_str(),
              Bytes(cpu.free_bytes).c_str());
  for (size_t i = 0; i < cuda.devices.size(); ++i) PrintDevice(i + 2, cuda.devices[i]);
  if (platform != nullptr) {
    const PlatformVersions& v = platform->versions();
    std::printf("CUDA %s", Version(v.runtime).c_str());
    if (v.driver > 0) std::printf(", driver for CUDA %s", Version(v.driver).c_str());
    std::printf(", cuBLAS %d, cuDNN %d, NCCL %d, NVRTC %s\n", v.cublas, v.cudnn, v.nccl, Version(v.nvrtc).c_str());
  }
  if (!cuda.problem.empty()) std::printf("no CUDA devices: %s\n", Escaped(cuda.problem, 1000).c_str());
  return 0;
}

}  // namespace

Action DeclareDevices(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  auto run = std::make_shared<std::string>();
  app.add_option("run", *run, "the folder of a run: show its memory on each device, as of a recent step, or of its end");
  app.add_flag("--json", *json, "print one JSON object");
  return [json, run] { return run->empty() ? Devices(*json) : DevicesOf(*run, *json); };
}

}  // namespace gradloom
