// The hyperparameters in which the runs of a sweep differ.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/session/event_file.h"
#include "tools/config/configuration.h"

namespace gradloom {

// The values of the keys that affect training, by key. `batch`: the batch size that was chosen if none was given.
std::map<std::string, Hparam> HparamsOf(const Configuration& configuration, int64_t batch);

}  // namespace gradloom
