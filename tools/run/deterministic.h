// What --deterministic asks for beyond what always holds.
#pragma once

#include "tools/config/configuration.h"

namespace gradloom {

// Throws Error(kConfig) where the configuration or the environment asks for what may give other bits the next time, and sets the variables
// by which GPU libraries choose, before any of them is loaded. Nothing is done where train.deterministic is off.
void RequireDeterministic(const Configuration& configuration);

}  // namespace gradloom
