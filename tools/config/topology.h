// Reads descriptions of clusters for the simulator.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/cost/cluster.h"

namespace gradloom {

// Reads
//   [device]      kind = "cpu" or "cuda"; then members of DeviceCosts, by default those of the kind: flops_per_second,
//                 tf32_flops_per_second, half_flops_per_second, functions_per_second, bytes_per_second, bandwidth_threads, cache_bytes,
//                 cache_bytes_per_second, launch_seconds, team_seconds, event_seconds, step_seconds, wake_seconds
//   [node]        shared_cores: cores that CPU devices share; devices: by default 1, or any number of them if they share cores;
//                 link_bytes_per_second, link_seconds: between devices of a node
//   [network]     bytes_per_second, seconds: from a device to another node
//   [all_reduce]  algorithm = "fastest", "ring", "tree" or "double_tree"
// Throws Error(kIo) for a file that cannot be read, and Error(kConfig) with the line for an unknown entry.
Cluster ReadTopology(const std::string& path);

struct TopologyNumber {
  std::string_view section, key;
  double value = 0;
};

// The numbers of a file that describes the cluster, section by section.
std::vector<TopologyNumber> TopologyNumbers(const Cluster& cluster);

// The text of a file that is read as exactly this cluster, whose devices are of one kind, and without Cluster::gpus.
std::string TopologyText(DeviceKind kind, const Cluster& cluster);

}  // namespace gradloom
