// gradloom devices: what this machine offers.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/gradloom/verbs.h"
#include "tools/run/environment.h"

namespace gradloom {
namespace {

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
  app.add_flag("--json", *json, "print one JSON object");
  return [json] { return Devices(*json); };
}

}  // namespace gradloom
