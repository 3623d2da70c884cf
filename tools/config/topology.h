// Reads descriptions of clusters for the simulator.
#pragma once

#include <string>

#include "compiler/cost/cluster.h"

namespace gradloom {

// Reads
//   [device]      kind = "cpu" or "cuda"; flops_per_second, bytes_per_second, launch_seconds, event_seconds, step_seconds; defaults by
//                 kind
//   [node]        devices; link_bytes_per_second, link_seconds: between devices of a node; shared_cores: cores that CPU devices share
//   [network]     bytes_per_second, seconds: from a device to another node
//   [all_reduce]  algorithm = "fastest", "ring", "tree" or "double_tree"
// Throws Error(kIo) for a file that cannot be read, and Error(kConfig) with the line for an unknown entry.
Cluster ReadTopology(const std::string& path);

}  // namespace gradloom
