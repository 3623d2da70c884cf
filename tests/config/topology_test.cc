#include "tools/config/topology.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/base/temporary_folder.h"

namespace gradloom {
namespace {

class TopologyTest : public ::testing::Test {
 protected:
  Cluster Read(const std::string& text) {
    WriteWithoutSync(folder_ / "t.toml", text);
    return ReadTopology(folder_ / "t.toml");
  }

  TemporaryFolder folder_;
};

void ExpectSame(const Cluster& want, const Cluster& got) {
  const std::vector<TopologyNumber> wanted = TopologyNumbers(want), numbers = TopologyNumbers(got);
  ASSERT_EQ(wanted.size(), numbers.size());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(wanted[i].value, numbers[i].value) << wanted[i].section << "." << wanted[i].key;
  EXPECT_EQ(want.algorithm, got.algorithm);
  EXPECT_EQ(want.shared_cores, got.shared_cores);
  EXPECT_EQ(want.devices_per_node, got.devices_per_node);
  EXPECT_EQ(want.device.streams_share, got.device.streams_share);
  EXPECT_EQ(want.device.compute_threads, got.device.compute_threads);
}

TEST_F(TopologyTest, WhatIsWrittenIsReadExactly) {
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    for (const int cores : {0, 1, 12}) {
      Cluster cluster = LocalCluster(kind, cores);
      ExpectSame(cluster, Read(TopologyText(kind, cluster)));
      // Numbers that no short decimal number is.
      double* const numbers[] = {&cluster.device.flops_per_second,      &cluster.device.tf32_flops_per_second,
                                 &cluster.device.half_flops_per_second, &cluster.device.functions_per_second,
                                 &cluster.device.bytes_per_second,      &cluster.device.bandwidth_threads,
                                 &cluster.device.cache_bytes,           &cluster.device.cache_bytes_per_second,
                                 &cluster.device.launch_seconds,        &cluster.device.team_seconds,
                                 &cluster.device.event_seconds,         &cluster.device.step_seconds,
                                 &cluster.device.wake_seconds,          &cluster.inside.seconds,
                                 &cluster.inside.bytes_per_second,      &cluster.between.seconds,
                                 &cluster.between.bytes_per_second};
      double value = 1e-9;
      for (double* number : numbers) *number = value *= 10.0 / 3;
      cluster.algorithm = AllReduceAlgorithm::kDoubleTree;
      cluster.devices_per_node = 5;
      const Cluster read = Read("# a machine\n" + TopologyText(kind, cluster));
      ExpectSame(cluster, read);
      EXPECT_EQ(read.inside.seconds, cluster.inside.seconds);
      EXPECT_EQ(read.between.bytes_per_second, cluster.between.bytes_per_second);
    }
  }
}

TEST_F(TopologyTest, DevicesThatShareCoresAreOnOneNode) {
  EXPECT_EQ(Read("[device]\nkind = \"cpu\"\n[node]\nshared_cores = 4\n").devices_per_node, kManyDevices);
  EXPECT_EQ(Read("[device]\nkind = \"cpu\"\n[node]\nshared_cores = 4\ndevices = 2\n").devices_per_node, 2);
  EXPECT_EQ(Read("[device]\nkind = \"cpu\"\n").devices_per_node, 1);
}

TEST_F(TopologyTest, RatesAreAboveZeroAndTimesAtLeastZero) {
  EXPECT_EQ(Read("[device]\nevent_seconds = 0\n").device.event_seconds, 0);
  for (const char* key : {"flops_per_second", "bytes_per_second", "bandwidth_threads"}) {
    const Error error = ErrorOf([&] { Read("[device]\n" + std::string(key) + " = 0\n"); });
    EXPECT_EQ(error.message(), "device." + std::string(key) + " must be a number above 0");
  }
  const Error error = ErrorOf([&] { Read("[device]\nwake_seconds = -1e-6\n"); });
  EXPECT_EQ(error.message(), "device.wake_seconds must be a number of at least 0");
}

}  // namespace
}  // namespace gradloom
