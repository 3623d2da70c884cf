// gradloom devices: what this machine offers.
#include <sched.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/gradloom/verbs.h"

namespace gradloom {
namespace {

struct CpuDevice {
  std::string name = "CPU";
  int cores = 1;  // that this process may use
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
  std::string isa;
};

// The value after "KEY :" in a file of /proc, or "".
std::string ProcValue(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    const size_t start = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

std::string WidestIsa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) return "avx512";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
#endif
  return "baseline";
}

CpuDevice ThisCpu() {
  CpuDevice cpu;
  const std::string name = ProcValue("/proc/cpuinfo", "model name");
  if (!name.empty()) cpu.name = name;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) cpu.cores = CPU_COUNT(&allowed);
  const int64_t page = sysconf(_SC_PAGESIZE);
  cpu.total_bytes = sysconf(_SC_PHYS_PAGES) * page;
  const std::string available = ProcValue("/proc/meminfo", "MemAvailable");
  cpu.free_bytes = available.empty() ? sysconf(_SC_AVPHYS_PAGES) * page : std::stoll(available) * 1024;
  cpu.isa = WidestIsa();
  return cpu;
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
  app.add_flag("--json", *json, "print one JSON object");
  return [json] { return Devices(*json); };
}

}  // namespace gradloom
