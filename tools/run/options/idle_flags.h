// Flags that would do nothing without another one.
#pragma once

#include "tools/config/configuration.h"

namespace gradloom {

// Throws Error(kConfig) for a key of a training run that was set, although what it modifies is not: it would have no effect, which its user
// does not expect. Keys that a run has recorded are left as they are, since earlier releases ignored them. Keys of the optimizer are
// checked by OptimizerOf.
void CheckIdleFlags(const Configuration& configuration);

}  // namespace gradloom
