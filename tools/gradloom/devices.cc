// gradloom devices: what this machine offers, and what a run holds of it.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "tools/gradloom/verbs.h"
#include "tools/run/environment.h"
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

// What the run said last; written after each epoch.
int DevicesOf(const std::string& run, bool json) {
  const std::string path = run + "/memory.json";
  try {
    const nlohmann::json held = nlohmann::json::parse(ReadWholeFile(path));
    json ? void(std::printf("%s\n", held.dump().c_str())) : PrintHeld(held);
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorCode::kData, "not a record of memory", Escaped(path, 4096), "it is written after each epoch: train the run further");
  }
  return 0;
}

int Devices(bool json) {
  const CpuDevice cpu = ThisCpu();
  if (json) {
    const nlohmann::json list = nlohmann::json::array({{{"id", "cpu"},
                                                        {"name", cpu.name},
                                                        {"cores", cpu.cores},
                                                        {"isa", cpu.isa},
                                                        {"memory_total_bytes", cpu.total_bytes},
                                                        {"memory_free_bytes", cpu.free_bytes}}});
    std::printf("%s\n", nlohmann::json{{"devices", list}}.dump().c_str());
    return 0;
  }
  std::printf("1 device(s) found\n");
  std::printf("1. %s  cpu  %d cores, %s  %.1f GB, %.1f GB free\n", cpu.name.c_str(), cpu.cores, cpu.isa.c_str(),
              static_cast<double>(cpu.total_bytes) / 1e9, static_cast<double>(cpu.free_bytes) / 1e9);
  return 0;
}

}  // namespace

Action DeclareDevices(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  auto run = std::make_shared<std::string>();
  app.add_option("run", *run, "the folder of a run: what it holds of each device's memory, as of its last epoch");
  app.add_flag("--json", *json, "print one JSON object");
  return [json, run] { return run->empty() ? Devices(*json) : DevicesOf(*run, *json); };
}

}  // namespace gradloom
