#include "tools/run/options/deterministic.h"

#include <cstdlib>
#include <string>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

struct Wanted {
  const char *name, *value;
};

// A fixed order of sums for any number of channels, and one workspace per stream, as in Megatron-LM and PyTorch.
constexpr Wanted kVariables[] = {{"NCCL_ALGO", "Ring"}, {"CUBLAS_WORKSPACE_CONFIG", ":4096:8"}};

void Refuse(const Configuration& configuration, const char* key, const std::string& why) {
  throw Error(ErrorCode::kConfig,
              "--deterministic and " + std::string(FindKey(key)->flag) + " " + configuration.Text(key) + " contradict each other: " + why,
              Escaped(configuration.origin(key).place, 4096), "omit one of them");
}

}  // namespace

void RequireDeterministic(const Configuration& configuration) {
  if (!configuration.Switch("train.deterministic")) return;
  if (configuration.Text("train.sync") == "hogwild")
    Refuse(configuration, "train.sync", "updates without locks happen in a different order each time");
  if (configuration.Text("devices.autotune") == "on")
    Refuse(configuration, "devices.autotune", "measuring may select a different algorithm the next time");
  if (configuration.Text("devices.sum_order") == "any")
    Refuse(configuration, "devices.sum_order", "sums are rounded differently each time");
  for (const Wanted& wanted : kVariables) {
    const char* set = std::getenv(wanted.name);
    if (set != nullptr && std::string(set) != wanted.value) {
      throw Error(ErrorCode::kConfig, std::string(wanted.name) + "=" + Escaped(set) + " contradicts --deterministic", "the environment",
                  "unset " + std::string(wanted.name) + ", or set it to " + wanted.value);
    }
    ::setenv(wanted.name, wanted.value, 1);
  }
}

}  // namespace gradloom
