#include "tools/run/records/environment.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/cpu/cpu_kernels.h"
#include "runtime/base/control_group.h"
#include "runtime/base/counted.h"
#include "runtime/base/host_memory.h"
#include "runtime/base/version.h"

namespace gradloom {
namespace {

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

}  // namespace

CpuDevice ThisCpu() {
  CpuDevice cpu;
  const std::string name = ProcValue("/proc/cpuinfo", "model name");
  if (!name.empty()) cpu.name = name;
  cpu.cores = AllowedCores();
  const int64_t page = sysconf(_SC_PAGESIZE);
  cpu.total_bytes = sysconf(_SC_PHYS_PAGES) * page;
  cpu.free_bytes = FreeHostBytes();
  cpu.isa = UsedInstructionSet();
  cpu.bfloat16 = FastBfloat16Instructions();
  return cpu;
}

std::string CoresText(const CpuDevice& cpu) {
  return Counted(cpu.cores, "core") + ", " + cpu.isa + (cpu.bfloat16.empty() ? "" : ", bfloat16 by " + cpu.bfloat16);
}

ProcessMemory ThisProcess() {
  const auto kib = [](const char* key) { return std::strtoll(ProcValue("/proc/self/status", key).c_str(), nullptr, 10) * 1024; };
  return {kib("VmRSS"), kib("VmHWM")};
}

nlohmann::json ToJson(const std::vector<DeviceMemory>& memory) {
  nlohmann::json devices = nlohmann::json::array();
  for (const DeviceMemory& held : memory) {
    devices.push_back({{"id", held.device}, {"allocated_bytes", held.allocated}, {"cached_bytes", held.cached}, {"free_bytes", held.free}});
  }
  return {{"devices", devices}};
}

nlohmann::json Environment() {
  utsname system{};
  uname(&system);
  const CpuDevice cpu = ThisCpu();
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  nlohmann::json variables = nlohmann::json::object();
  const auto add = [&](const char* name) {
    if (const char* value = std::getenv(name)) variables[name] = value;
  };
  for (const char* name : {"OMP_NUM_THREADS", "OMP_PROC_BIND", "CUDA_VISIBLE_DEVICES", "NO_COLOR", "TERM", "CI", "LANG"}) add(name);
  for (const char* name : kNcclVariables) add(name);
  std::error_code error;
  return {{"version", kVersion},
          {"compiler", __VERSION__},
          {"system", std::string(system.sysname) + " " + system.release + " " + system.machine},
          {"host", system.nodename},
          {"cpu", {{"name", cpu.name}, {"cores", cpu.cores}, {"isa", cpu.isa}, {"bfloat16", cpu.bfloat16}}},
          {"memory_total_bytes", cpu.total_bytes},
          {"memory_free_bytes", cpu.free_bytes},
          {"open_files_limit", static_cast<int64_t>(files.rlim_cur)},
          {"working_folder", std::filesystem::current_path(error).string()},
          {"variables", variables}};
}

std::vector<std::string> CommandLine() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(in, word, '\0');) words.push_back(word);
  return words;
}

}  // namespace gradloom
