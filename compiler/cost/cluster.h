// Performance figures of the machines that a plan may run on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/cost/cost_model.h"

namespace gradloom {

// The time of a message: a fixed latency in seconds, plus its bytes at a constant rate.
struct Link {
  double seconds = 0;
  double bytes_per_second = 1;
};

// Devices on one node, as many as a plan may have.
inline constexpr int kManyDevices = 1 << 20;

enum class AllReduceAlgorithm : uint8_t { kFastest, kRing, kTree, kDoubleTree };

// Nodes with the same number of devices each. The devices of a node are connected by one kind of link. The nodes are connected by another
// kind, which the devices of a node share equally.
struct Cluster {
  DeviceCosts device;
  int devices_per_node = 1;
  Link inside, between;
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::kFastest;
  // For CPU devices: the number of cores that the devices of a node share. 0: each device has its own, as `device` says.
  int shared_cores = 0;
  // For GPUs: the number of the GPU on which each rank of a plan runs. Ranks on the same GPU share its rates. Empty: each has its own.
  std::vector<int> gpus = {};
};

// The devices of one process: CPU devices on a machine with `cores` cores, or the GPUs of one node.
Cluster LocalCluster(DeviceKind device, int cores);

// The size of a message that takes ten times as long to transfer as an all-reduce between that many devices takes to start. 0: nothing is
// transferred.
int64_t BucketBytes(const Cluster& cluster, int devices);

// The seconds that a transfer between two devices of a node takes.
double TransferSeconds(int64_t bytes, const Cluster& cluster);

// The seconds that an all-reduce of `bytes` over `devices` takes. Within a node: a reduce-scatter and an all-gather around a ring. Between
// nodes: each device's part around a ring, along a tree or along two trees, whichever the cluster prescribes or is fastest. A ring over n
// devices takes 2 (n - 1) messages of bytes / n, a tree 2 log2 n messages of all bytes. Two trees, as in NCCL, each sum half of the bytes,
// in messages of bytes / k that follow each other: 2 (log2 n + k) messages, with the k that takes least time. See Rabenseifner,
// "Optimization of Collective Reduction Operations", 2004; Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication
// Operations in MPICH", 2005; Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009.
double AllReduceSeconds(int64_t bytes, int devices, const Cluster& cluster);

}  // namespace gradloom
