#include "compiler/cost/cluster.h"

#include <algorithm>
#include <cmath>

namespace gradloom {
namespace {

double RingSeconds(double bytes, int members, const Link& link) {
  if (members < 2) return 0;
  const double messages = 2.0 * (members - 1);
  return messages * (link.seconds + bytes / members / link.bytes_per_second);
}

double TreeSeconds(double bytes, int members, const Link& link) {
  if (members < 2) return 0;
  return 2 * std::ceil(std::log2(members)) * (link.seconds + bytes / link.bytes_per_second);
}

double DoubleTreeSeconds(double bytes, int members, const Link& link) {
  if (members < 2) return 0;
  const double fill = std::sqrt(std::ceil(std::log2(members)) * link.seconds), move = std::sqrt(bytes / link.bytes_per_second);
  return 2 * (fill + move) * (fill + move);
}

double AcrossNodes(double bytes, int nodes, const Cluster& cluster) {
  const double ring = RingSeconds(bytes, nodes, cluster.between), double_tree = DoubleTreeSeconds(bytes, nodes, cluster.between);
  switch (cluster.algorithm) {
    case AllReduceAlgorithm::kRing: return ring;
    case AllReduceAlgorithm::kTree: return TreeSeconds(bytes, nodes, cluster.between);
    case AllReduceAlgorithm::kDoubleTree: return double_tree;
    case AllReduceAlgorithm::kFastest: break;
  }
  return std::min({ring, double_tree, TreeSeconds(bytes, nodes, cluster.between)});
}

}  // namespace

Cluster LocalCluster(DeviceKind device, int cores) {
  const int shared = device == DeviceKind::kCpu ? cores : 0;
  Cluster cluster{.device = DefaultCosts(device), .devices_per_node = kManyDevices, .shared_cores = shared};
  // The compiler decides by operators, of which each is one launch. A product counts as several of a plan's (KernelWork::launches).
  if (device == DeviceKind::kCpu) cluster.device.launch_seconds = 0.1e-6;
  // Threads of one process wait at a barrier, and devices read each other's memory.
  cluster.inside = {cluster.device.collective_seconds / 4, cluster.device.link_bytes_per_second};
  cluster.between = cluster.inside;
  return cluster;
}

int64_t BucketBytes(const Cluster& cluster, int devices) {
  constexpr int64_t kMany = int64_t{1} << 30;
  const double begin = AllReduceSeconds(0, devices, cluster);
  const double move = (AllReduceSeconds(kMany, devices, cluster) - begin) / static_cast<double>(kMany);
  return move > 0 ? static_cast<int64_t>(std::clamp(10 * begin / move, 1.0, static_cast<double>(kMany))) : 0;
}

double TransferSeconds(int64_t bytes, const Cluster& cluster) {
  return cluster.inside.seconds + static_cast<double>(bytes) / cluster.inside.bytes_per_second;
}

double AllReduceSeconds(int64_t bytes, int devices, const Cluster& cluster) {
  const int inside = std::min(devices, std::max(cluster.devices_per_node, 1)), nodes = (devices + inside - 1) / inside;
  const double all = static_cast<double>(bytes);
  // Between the reduce-scatter and the all-gather within a node, each device holds its share of the bytes.
  return RingSeconds(all, inside, cluster.inside) + AcrossNodes(all / inside, nodes, cluster);
}

}  // namespace gradloom
