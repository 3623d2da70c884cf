#include "tools/run/options/described_cluster.h"

#include "tools/config/topology.h"
#include "tools/run/records/environment.h"

namespace gradloom {

Cluster DescribedCluster(const std::string& topology, DeviceKind device) {
  return topology.empty() ? LocalCluster(device, ThisCpu().cores) : ReadTopology(topology);
}

}  // namespace gradloom
