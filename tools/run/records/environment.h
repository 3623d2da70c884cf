// The machine, the program and the command, for the records of a run and for bug reports.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/exec/executor.h"

namespace gradloom {

struct CpuDevice {
  std::string name = "CPU";
  int cores = 1;  // available to this process
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
  std::string isa;       // the widest instruction set that kernels use
  std::string bfloat16;  // the instructions by which `--precision bf16` is faster: "amx", "avx512_bf16" or ""
};

CpuDevice ThisCpu();

// "2 cores, avx512, bfloat16 by amx"
std::string CoresText(const CpuDevice& cpu);

struct ProcessMemory {
  int64_t resident_bytes = 0;  // current
  int64_t peak_bytes = 0;      // peak
};

ProcessMemory ThisProcess();

// The memory that a process holds on its devices: {"devices": [{"id": "cpu", "allocated_bytes": ...}]}.
nlohmann::json ToJson(const std::vector<DeviceMemory>& memory);

// The NCCL variables that a run prints and records; NCCL itself reads these and others.
inline constexpr const char* kNcclVariables[] = {"NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "NCCL_ALGO", "NCCL_PROTO"};

// Version and build, operating system, host, CPU, memory, limits and relevant environment variables.
nlohmann::json Environment();

// The arguments of the running command. Empty if the system does not provide them.
std::vector<std::string> CommandLine();

}  // namespace gradloom
