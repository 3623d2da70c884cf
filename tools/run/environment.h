// The machine, the program and the command, for the record of a run and for bug reports.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/exec/executor.h"

namespace gradloom {

struct CpuDevice {
  std::string name = "CPU";
  int cores = 1;  // that this process may use
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
  std::string isa;  // the widest instruction set that kernels have a use for
};

CpuDevice ThisCpu();

struct ProcessMemory {
  int64_t resident_bytes = 0;  // now
  int64_t peak_bytes = 0;      // the most so far
};

ProcessMemory ThisProcess();

// The memory of devices that a process holds: {"devices": [{"id": "cpu", "allocated_bytes": ...}]}.
nlohmann::json ToJson(const std::vector<DeviceMemory>& memory);

// The variables of NCCL that a run says and records; NCCL reads them, and others, by itself.
inline constexpr const char* kNcclVariables[] = {"NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "NCCL_ALGO", "NCCL_PROTO"};

// Version and build, operating system, host, CPU and memory, limits, the variables that matter.
nlohmann::json Environment();

// The words of the running command. Empty where the system does not say.
std::vector<std::string> CommandLine();

}  // namespace gradloom
