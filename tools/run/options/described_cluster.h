// The cluster for which times are predicted.
#pragma once

#include <string>

#include "compiler/cost/cluster.h"

namespace gradloom {

// What the file `topology` describes (ReadTopology); "": devices of this kind on this machine, by the compiler's own figures.
Cluster DescribedCluster(const std::string& topology, DeviceKind device);

}  // namespace gradloom
