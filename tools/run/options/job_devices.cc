#include "tools/run/options/job_devices.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/base/counted.h"

namespace gradloom {
namespace {}  // namespace

std::string OwnDevices::ToText() const {
  return nlohmann::json{{"ordinals", devices.ordinals}, {"isa", isa}, {"ids", ids}, {"note", note}}.dump();
}

OwnDevices OwnDevices::FromText(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  OwnDevices own;
  own.devices.ordinals = json["ordinals"].get<std::vector<int>>();
  if (!own.devices.ordinals.empty()) {
    own.devices.kind = DeviceKind::kCuda;
    own.devices.count = static_cast<int>(own.devices.ordinals.size());
  }
  own.isa = json["isa"];
  own.ids = json["ids"].get<std::vector<std::string>>();
  own.note = json["note"];
  return own;
}

OwnDevices TakeOwnDevices(const DeviceSpec& wanted, const JobTopology& topology, const CudaDevices& machine) {
  OwnDevices own;
  const DeviceSpec of_rank = topology.local_world > 1 ? DeviceOfLocalRank(wanted, topology.local_rank, machine) : wanted;
  own.devices = ChooseDevices(of_rank, machine, &own.note);
  for (const int ordinal : own.devices.ordinals) {
    const auto found = std::find_if(machine.devices.begin(), machine.devices.end(),
                                    [&](const DeviceProperties& device) { return device.ordinal == ordinal; });
    own.ids.push_back(found->uuid);
    own.isa = ArchitectureOf(own.devices, machine);
  }
  return own;
}

OwnDevices CombineDevices(const std::vector<OwnDevices>& all, const std::vector<std::string>& names) {
  OwnDevices made;
  made.isa = all[0].isa;
  size_t gpus = 0;
  for (const OwnDevices& own : all) gpus += own.ids.size();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].devices.kind != all[0].devices.kind) {
      const size_t none = all[i].devices.kind == DeviceKind::kCuda ? 0 : i, some = i - none;
      throw Error(ErrorCode::kDevice, names[some] + " has a GPU, but " + names[none] + " has none: " + Escaped(all[none].note, 1000), "",
                  "use --devices cpu  for all, or leave that host out");
    }
  }
  std::map<std::string, std::string> users;  // process names by GPU
  for (size_t i = 0; i < all.size(); ++i) {
    const OwnDevices& own = all[i];
    if (own.isa != made.isa) {
      throw Error(
          ErrorCode::kConfig,
          "the GPUs of a job must have one architecture: " + names[0] + " has " + made.isa + ", and " + names[i] + " has " + own.isa, "",
          "start the job on hosts with the same kind of GPU");
    }
    // Must match how ranks are assigned to processes.
    if (own.ids.size() != gpus * (i + 1) / all.size() - gpus * i / all.size()) {
      throw Error(ErrorCode::kConfig,
                  "each process of a job must have the same number of GPUs: of " + Counted(gpus, "GPU") + " for " +
                      std::to_string(all.size()) + " processes " + names[i] + " has " + std::to_string(own.ids.size()),
                  "", "start one process for each GPU: --nproc-per-node gpu, with  --devices cuda");
    }
    for (const std::string& id : own.ids) {
      const auto [user, fresh] = users.emplace(id, names[i]);
      if (!fresh) {
        throw Error(ErrorCode::kConfig,
                    "a GPU cannot be used twice in a job: " + user->second + " and " + names[i] + " both use " + Escaped(id), "",
                    "use --devices cuda, which gives each process of a host its own GPU");
      }
    }
    made.devices.ordinals.insert(made.devices.ordinals.end(), own.devices.ordinals.begin(), own.devices.ordinals.end());
    made.ids.insert(made.ids.end(), own.ids.begin(), own.ids.end());
  }
  made.devices.kind = all[0].devices.kind;
  made.devices.count =
      made.devices.kind == DeviceKind::kCuda ? static_cast<int>(made.devices.ordinals.size()) : static_cast<int>(all.size());
  return made;
}

}  // namespace gradloom
