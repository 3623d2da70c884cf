#include "tools/run/options/named_devices.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>

#include "runtime/base/control_group.h"
#include "runtime/base/error.h"
#include "runtime/device/choose_devices.h"
#include "tools/run/options/key_values.h"

namespace gradloom {
namespace {

// This machine's GPUs, enumerated once: the first query loads the driver.
const CudaDevices& Machine() {
  static const CudaDevices machine = ThisMachinesCuda();
  return machine;
}

constexpr int kMaxThreads = 1024;

bool IsArchitecture(const std::string& text) {
  return text.size() >= 5 && text.size() <= 7 && text.starts_with("sm_") && std::all_of(text.begin() + 3, text.begin() + 5, ::isdigit);
}

// A positive number in the environment; 0: there is none.
int NumberIn(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 0 : std::max(0, std::atoi(text));
}

}  // namespace

int ThreadsOfProcess(int processes) {
  const int wanted = NumberIn("OMP_NUM_THREADS"), limit = NumberIn("OMP_THREAD_LIMIT");
  const int threads = wanted > 0 ? std::min(wanted, kMaxThreads) : std::max(1, AllowedCores() / processes);
  return limit > 0 ? std::min(threads, limit) : threads;
}

int ThreadsOfDevice(const Configuration& configuration, int devices) {
  const int64_t threads = configuration.Integer("devices.threads");
  return threads > 0 ? static_cast<int>(std::min<int64_t>(threads, kMaxThreads)) : std::max(1, ThreadsOfProcess(1) / devices);
}

int ThreadsOfReading(const Configuration& configuration) {
  if (configuration.Integer("devices.threads") == 0) return ThreadsOfProcess(1);
  int devices = 1;
  try {
    devices = std::max(devices, ParseDevices(configuration.Text("devices.use")).count);
  } catch (const Error&) {
    // It is reported when the devices are chosen.
  }
  return ThreadsOfDevice(configuration, 1) * devices;
}

NamedDevices DevicesOf(const Configuration& configuration, std::vector<std::string>& notes) {
  NamedDevices named;
  const std::string& target = configuration.Text("devices.target");
  Reading(configuration, "devices.target", [&] {
    if (target.empty() || IsArchitecture(target)) return;
    throw Error(ErrorCode::kConfig, "unknown target '" + Escaped(target) + "'", "", "for example --target sm_90");
  });
  Reading(configuration, "devices.use", [&] {
    const std::string& text = configuration.Text("devices.use");
    // A target implies a GPU.
    const DeviceSpec wanted = ParseDevices(!target.empty() && !configuration.is_set("devices.use") ? "cuda" : text);
    if (target.empty()) {
      const bool asks = wanted.best || wanted.kind == DeviceKind::kCuda;
      const CudaDevices machine = asks ? Machine() : CudaDevices();
      std::string note;
      named.devices = ChooseDevices(wanted, machine, &note);
      if (!note.empty()) notes.push_back(note);
      named.free = FreeDevicesNote(wanted, named.devices, machine);
      if (named.devices.kind == DeviceKind::kCuda) named.isa = ArchitectureOf(named.devices, machine);
      return;
    }
    if (wanted.kind != DeviceKind::kCuda) {
      throw Error(ErrorCode::kConfig, "the target " + target + " is a GPU, but the devices are " + wanted.ToString(), "",
                  "use --devices cuda:0 with --target " + target);
    }
    named.devices = wanted;
    named.devices.count = std::max(named.devices.count, 1);
    named.isa = target;
  });
  return named;
}

ExecutorOptions ExecutorOptionsOf(const Configuration& configuration) {
  std::vector<std::string> notes;
  return {.check_numerics = configuration.Switch("train.check_numerics"),
          .ordinals = DevicesOf(configuration, notes).devices.ordinals,
          .graph = configuration.Text("devices.cuda_graph") != "off",
          .pin_memory = configuration.Text("devices.pin_memory") != "off",
          .autotune = configuration.Text("devices.autotune") == "on"};
}

}  // namespace gradloom
