// What the runs of a sweep differ in.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/session/event_file.h"
#include "tools/config/configuration.h"

namespace gradloom {

// The values of the keys that change what is learned, by the names of the keys. `batch`: the one that was chosen where none was given.
std::map<std::string, Hparam> HparamsOf(const Configuration& configuration, int64_t batch);

}  // namespace gradloom
