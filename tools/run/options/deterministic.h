// The requirements of --deterministic beyond what always holds.
#pragma once

#include "tools/config/configuration.h"

namespace gradloom {

// If train.deterministic is set: throws Error(kConfig) if the configuration or the environment requests something that is not reproducible,
// and sets the environment variables that GPU libraries read, before any of them is loaded.
void RequireDeterministic(const Configuration& configuration);

}  // namespace gradloom
