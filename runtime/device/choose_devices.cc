#include "runtime/device/choose_devices.h"

#include <algorithm>
#include <cstdlib>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

std::string Names(const CudaDevices& machine) {
  std::string names;
  for (const DeviceProperties& device : machine.devices) names += (names.empty() ? "cuda:" : ", cuda:") + std::to_string(device.ordinal);
  return names;
}

bool Has(const CudaDevices& machine, int ordinal) {
  return std::any_of(machine.devices.begin(), machine.devices.end(), [&](const DeviceProperties& d) { return d.ordinal == ordinal; });
}

// The first requested ordinal that does not exist; -1 if all exist.
int Missing(const DeviceSpec& wanted, const CudaDevices& machine) {
  for (int ordinal : wanted.ordinals) {
    if (!Has(machine, ordinal)) return ordinal;
  }
  return wanted.ordinals.empty() && machine.devices.empty() ? 0 : -1;
}

}  // namespace

CudaDevices ThisMachinesCuda() {
  CudaDevices machine;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"); visible != nullptr) machine.visible = visible;
  DevicePlatform* const platform = CudaPlatform(&machine.problem);
  if (platform == nullptr) return machine;
  machine.problem = platform->problem();
  if (machine.problem.empty()) machine.devices = platform->devices();
  return machine;
}

DeviceSpec ChooseDevices(const DeviceSpec& wanted, const CudaDevices& machine, std::string* note) {
  const std::string why = machine.problem.empty() ? "there is no GPU" : machine.problem;
  if (wanted.best) {
    if (!machine.devices.empty()) return {.kind = DeviceKind::kCuda, .count = 1, .ordinals = {machine.devices.front().ordinal}};
    if (note != nullptr) *note = "training on the CPU: " + why;
    return {};
  }
  if (wanted.kind == DeviceKind::kCpu) return wanted;
  const int missing = Missing(wanted, machine);
  if (missing >= 0 && wanted.else_cpu) {
    if (note != nullptr)
      *note = "training on the CPU instead of " + wanted.ToString() + ": " +
              (machine.devices.empty() ? why : "this machine has " + Names(machine));
    return {};
  }
  if (missing >= 0) {
    const std::string seen = machine.visible.empty() ? "" : "CUDA_VISIBLE_DEVICES=" + Escaped(machine.visible);
    throw Error(ErrorCode::kDevice,
                "there is no device cuda:" + std::to_string(missing) + ": " +
                    (machine.devices.empty() ? why : "this machine has " + Names(machine)),
                seen, "use --devices cpu, or --devices cuda:0,else=cpu   see: gradloom devices");
  }
  DeviceSpec chosen = wanted;
  if (chosen.ordinals.empty()) {
    for (const DeviceProperties& device : machine.devices) {
      chosen.ordinals.push_back(device.ordinal);
      if (wanted.count == 1) break;
    }
  }
  chosen.count = static_cast<int>(chosen.ordinals.size());
  return chosen;
}

std::string ArchitectureOf(const DeviceSpec& devices, const CudaDevices& machine) {
  std::string isa;
  for (int ordinal : devices.ordinals) {
    const auto found = std::find_if(machine.devices.begin(), machine.devices.end(),
                                    [&](const DeviceProperties& device) { return device.ordinal == ordinal; });
    const std::string mine = "sm_" + std::to_string(found->compute_major * 10 + found->compute_minor);
    if (!isa.empty() && mine != isa) {
      throw Error(ErrorCode::kConfig, "devices " + devices.ToString() + " have different architectures: " + isa + " and " + mine, "",
                  "choose GPUs of one architecture   see: gradloom devices");
    }
    isa = mine;
  }
  return isa;
}

DeviceSpec DeviceOfLocalRank(const DeviceSpec& wanted, int local_rank, const CudaDevices& machine) {
  const bool any = wanted.best || (wanted.kind == DeviceKind::kCuda && wanted.ordinals.empty() && wanted.count == 1);
  if (!any || machine.devices.size() <= 1) return wanted;
  if (static_cast<size_t>(local_rank) >= machine.devices.size()) {
    throw Error(ErrorCode::kDevice, "there is no GPU for local rank " + std::to_string(local_rank) + ": this machine has " + Names(machine),
                machine.visible.empty() ? "" : "CUDA_VISIBLE_DEVICES=" + Escaped(machine.visible),
                "start one process for each GPU: --nproc-per-node gpu");
  }
  return {.kind = DeviceKind::kCuda,
          .count = 1,
          .ordinals = {machine.devices[static_cast<size_t>(local_rank)].ordinal},
          .else_cpu = wanted.else_cpu};
}

std::string FreeDevicesNote(const DeviceSpec& wanted, const DeviceSpec& chosen, const CudaDevices& machine) {
  if (chosen.kind != DeviceKind::kCuda || chosen.count != 1 || !wanted.ordinals.empty()) return "";
  constexpr int kIdlePercent = 5;
  std::string names;
  size_t count = 0;
  for (const DeviceProperties& device : machine.devices) {
    const bool taken = device.ordinal == chosen.ordinals.front();
    // Memory in use is a better sign of another user than a moment without load.
    const bool idle = device.busy_percent <= kIdlePercent && device.memory_free_bytes >= device.memory_total_bytes / 10 * 9;
    if (taken || !idle) continue;
    names += (names.empty() ? "cuda:" : ", cuda:") + std::to_string(device.ordinal);
    ++count;
  }
  if (count == 0) return "";
  return "devices " + std::to_string(count) + (count == 1 ? " more GPU is free (" : " more GPUs are free (") + names +
         "): --devices cuda:all trains on all";
}

}  // namespace gradloom
