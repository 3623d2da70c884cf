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
#include "tools/config/topology.h"
#include "tools/gradloom/verbs.h"
#include "tools/run/measure_device.h"
#include "tools/run/outputs.h"
#include "tools/run/records/environment.h"
#include "tools/run/train/run_folder.h"
#include "tools/run/views/device_list.h"
#include "tools/screen/json_line.h"
#include "tools/screen/screen.h"
#include "tools/screen/stderr_lines.h"

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

std::string Microseconds(double seconds) { return Short(seconds * 1e6) + " us"; }

std::string Gigabytes(double bytes_per_second) { return Short(bytes_per_second * 1e-9) + " GB/s"; }

void PrintMeasured(const MeasuredDevice& measured, const CpuDevice& cpu) {
  const DeviceCosts& c = measured.cluster.device;
  const Link& link = measured.cluster.inside;
  const auto line = [](const char* what, const std::string& text) { std::printf("%-12s %s\n", what, text.c_str()); };
  line("cpu", Escaped(cpu.name) + "  " + CoresText(cpu) + "  measured in " + Duration(measured.seconds));
  line("products", Short(c.flops_per_second * 1e-9) + " GFLOP/s per core");
  line("functions", Short(c.functions_per_second * 1e-9) + " billion elements/s per core, for an addition");
  line("memory", Gigabytes(c.bytes_per_second) + " by one core, " + Gigabytes(c.bytes_per_second * c.bandwidth_threads) + " by all");
  line("caches", Gigabytes(c.cache_bytes_per_second) + " per core, for up to " + Bytes(static_cast<int64_t>(c.cache_bytes)));
  line("launch", Microseconds(c.launch_seconds) + ", with several threads " + Microseconds(c.team_seconds) + " more");
  line("step", Microseconds(c.step_seconds) + ", on several devices or streams " + Microseconds(c.wake_seconds) + " more");
  line("event", Microseconds(c.event_seconds) + " until a stream that waits continues");
  line("all-reduce", Microseconds(2 * link.seconds) + " between two devices, and their bytes at " + Gigabytes(link.bytes_per_second));
}

nlohmann::ordered_json JsonOf(const MeasuredDevice& measured, const CpuDevice& cpu) {
  nlohmann::ordered_json made{
      {"cpu", cpu.name}, {"cores", cpu.cores}, {"isa", cpu.isa}, {"measured", Timestamp()}, {"seconds", measured.seconds}};
  for (const TopologyNumber& number : TopologyNumbers(measured.cluster))
    made[std::string(number.section)][std::string(number.key)] = number.value;
  made["variation"] = measured.variation;
  made["waited"] = measured.waited;
  made["busy"] = measured.busy();
  return made;
}

int MeasureDevices(const std::string& out, bool json) {
  if (!out.empty()) CheckCanWrite(out);
  const CpuDevice cpu = ThisCpu();
  const MeasuredDevice measured = MeasureCpu();
  if (!out.empty()) {
    WriteFileAtomically(out, "# " + Escaped(cpu.name) + ", " + CoresText(cpu) + ": measured by 'gradloom devices --measure' on " +
                                 Timestamp() + ".\n" + TopologyText(DeviceKind::kCpu, measured.cluster));
    LogToStderr(Escaped(out, 4096));
  }
  if (measured.busy()) {
    LogToStderr("warning the times vary by " + Short(100 * measured.variation) + " %, and the measurement waited for a core " +
                Short(100 * measured.waited) + " % of the time: something else is running; measure again when the machine is idle");
  }
  if (json) {
    std::printf("%s\n", JsonLine(JsonOf(measured, cpu)).c_str());
  } else {
    PrintMeasured(measured, cpu);
  }
  return 0;
}

struct DevicesFlags {
  std::string run, out;
  bool measure = false, json = false;
};

}  // namespace

Action DeclareDevices(CLI::App& app) {
  auto flags = std::make_shared<DevicesFlags>();
  CLI::Option* run =
      app.add_option("run", flags->run, "the folder of a run: show its memory on each device, as of a recent step, or of its end");
  CLI::Option* measure =
      app.add_flag("--measure", flags->measure, "measure the rates and the fixed costs of this machine's CPU, for simulate --topology");
  measure->excludes(run);
  app.add_option("-o,--output", flags->out, "with --measure: also write them to a file for --topology")->needs(measure);
  app.add_flag("--json", flags->json, "print one JSON object");
  return [flags] {
    if (flags->measure) return MeasureDevices(flags->out, flags->json);
    return flags->run.empty() ? Devices(flags->json) : DevicesOf(flags->run, flags->json);
  };
}

}  // namespace gradloom
