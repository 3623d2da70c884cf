// Machines that a plan may run on, as numbers.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/cost/cost_model.h"

namespace gradloom {

// What a message takes: seconds to begin, then bytes at a rate.
struct Link {
  double seconds = 0;
  double bytes_per_second = 1;
};

enum class AllReduceAlgorithm : uint8_t { kFastest, kRing, kTree };

// Nodes with as many devices each; devices of a node are joined by one kind of link, nodes by another, of which every device
// has its share.
struct Cluster {
  DeviceCosts device;
  int devices_per_node = 1;
  Link inside, between;
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::kFastest;
  // Cores that the devices of a node share, where these are CPU devices; 0: each device has what it says.
  int shared_cores = 0;
};

// The devices of one process: of the CPU on a machine with so many cores, or GPUs of one node.
Cluster LocalCluster(DeviceKind device, int cores);

// Bytes that take ten times as long to move as an all-reduce of so many devices takes to begin; 0: there is nothing to move.
int64_t BucketBytes(const Cluster& cluster, int devices);

// Seconds of a transfer between two devices of a node.
double TransferSeconds(int64_t bytes, const Cluster& cluster);

// Seconds of an all-reduce of so many bytes over `devices`. Within a node a reduce-scatter and an all-gather around a ring;
// between nodes each device's part around a ring or along a tree, whichever the cluster says or is faster.
// Rabenseifner, "Optimization of Collective Reduction Operations", 2004; Thakur, Rabenseifner and Gropp, "Optimization of
// Collective Communication Operations in MPICH", 2005: a ring over n takes 2 (n - 1) messages of bytes / n, a tree 2 log2 n of
// all bytes.
double AllReduceSeconds(int64_t bytes, int devices, const Cluster& cluster);

}  // namespace gradloom
