// The job that the running command belongs to.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/job_topology.h"
#include "tools/config/configuration.h"

namespace gradloom {

// The topology according to the keys of [job] and the environment. Throws Error(kConfig).
JobTopology TopologyOf(const Configuration& configuration);

// For the screen: "topology torchrun rank 1 of 2, ...", then its notes.
std::vector<std::string> LinesOf(const JobTopology& topology);

// Throws Error(kUnsupported) in a job of more than one process, for work that only a single process can do. `what`: for example
// "evaluation".
void RefuseSeveralProcesses(const JobTopology& topology, const std::string& what);

}  // namespace gradloom
