#include "runtime/base/control_group.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/base/temporary_folder.h"

namespace gradloom {
namespace {

class ControlGroupTest : public ::testing::Test {
 protected:
  void Write(const std::string& file, const std::string& text) {
    const std::string path = root_ / file;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    WriteWithoutSync(path, text);
  }
  GroupLimits Read(const std::string& groups) {
    WriteWithoutSync(root_ / "groups", groups);
    return LimitsOfThisGroup(root_.path(), root_ / "groups");
  }

  TemporaryFolder root_;
};

constexpr int64_t kMiB = int64_t{1} << 20;

TEST_F(ControlGroupTest, TightestEnclosingLimitCounts) {
  Write("cpu.max", "max 100000\n");
  Write("jobs/cpu.max", "350000 100000\n");
  Write("jobs/memory.max", std::to_string(512 * kMiB) + "\n");
  Write("jobs/memory.current", std::to_string(300 * kMiB) + "\n");
  Write("jobs/memory.stat",
        "anon 1\ninactive_file " + std::to_string(100 * kMiB) + "\nactive_file 7\nslab_reclaimable " + std::to_string(kMiB) + "\nslab 9\n");
  Write("jobs/one/cpu.max", "max 100000\n");
  Write("jobs/one/memory.max", "max\n");
  const GroupLimits limits = Read("0::/jobs/one\n");
  EXPECT_EQ(limits.cores, 3.5);
  EXPECT_EQ(limits.memory_bytes, 512 * kMiB);
  EXPECT_EQ(limits.swap_bytes, -1);
  EXPECT_EQ(limits.free_bytes, 313 * kMiB + 7) << "what the system takes back is free, whether used lately or not";
}

// The paths are those of the host, but the mounted tree is that of the container.
TEST_F(ControlGroupTest, ContainerSeesItsOwnGroupAsRoot) {
  Write("cpu.max", "150000 100000\n");
  Write("memory.max", "1048576\n");
  Write("memory.current", "2097152\n");
  const GroupLimits limits = Read("0::/docker/0123\n");
  EXPECT_EQ(limits.cores, 1.5);
  EXPECT_EQ(limits.memory_bytes, kMiB);
  EXPECT_EQ(limits.free_bytes, 0);
}

TEST_F(ControlGroupTest, Version1HasSeparateTrees) {
  Write("cpu/cpu.cfs_quota_us", "-1\n");
  Write("cpu/cpu.cfs_period_us", "100000\n");
  Write("cpu/slurm/cpu.cfs_quota_us", "200000\n");
  Write("cpu/slurm/cpu.cfs_period_us", "100000\n");
  Write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("memory/slurm/memory.limit_in_bytes", std::to_string(64 * kMiB) + "\n");
  Write("memory/slurm/memory.usage_in_bytes", std::to_string(16 * kMiB) + "\n");
  Write("memory/slurm/memory.stat", "cache 5\ntotal_inactive_file " + std::to_string(4 * kMiB) + "\n");
  const GroupLimits limits = Read("12:memory:/slurm/job\n4:cpu,cpuacct:/slurm\n3:cpuset:/slurm\n1:name=systemd:/\n");
  EXPECT_EQ(limits.cores, 2);
  EXPECT_EQ(limits.memory_bytes, 64 * kMiB);
  EXPECT_EQ(limits.free_bytes, 52 * kMiB);
  EXPECT_EQ(limits.swap_bytes, -1);
}

TEST_F(ControlGroupTest, SwapHasALimitOfItsOwn) {
  Write("jobs/memory.swap.max", std::to_string(40 * kMiB) + "\n");
  Write("jobs/memory.swap.current", std::to_string(30 * kMiB) + "\n");
  Write("jobs/one/memory.swap.max", std::to_string(20 * kMiB) + "\n");
  Write("jobs/one/memory.swap.current", "0\n");
  Write("jobs/two/memory.swap.max", "max\n");
  Write("jobs/none/memory.swap.max", "0\n");
  Write("jobs/none/memory.swap.current", "0\n");
  EXPECT_EQ(Read("0::/jobs/one\n").swap_bytes, 10 * kMiB) << "of both limits";
  EXPECT_EQ(Read("0::/jobs/two\n").swap_bytes, 10 * kMiB);
  EXPECT_EQ(Read("0::/jobs/none\n").swap_bytes, 0);
  EXPECT_EQ(Read("0::/\n").swap_bytes, -1);
  EXPECT_EQ(Read("0::/jobs/one\n").free_bytes, -1);
}

// One limit for memory, and one for memory and swap together.
TEST_F(ControlGroupTest, Version1LimitsSwapWithMemory) {
  Write("memory/memory.memsw.limit_in_bytes", "9223372036854771712\n");
  Write("memory/memory.memsw.usage_in_bytes", "0\n");
  Write("memory/job/memory.limit_in_bytes", std::to_string(64 * kMiB) + "\n");
  Write("memory/job/memory.usage_in_bytes", std::to_string(16 * kMiB) + "\n");
  Write("memory/job/memory.memsw.limit_in_bytes", std::to_string(96 * kMiB) + "\n");
  Write("memory/job/memory.memsw.usage_in_bytes", std::to_string(20 * kMiB) + "\n");
  EXPECT_EQ(Read("12:memory:/job\n").swap_bytes, 28 * kMiB) << "4 of 32 MiB are used";
  Write("memory/job/memory.memsw.limit_in_bytes", std::to_string(64 * kMiB) + "\n");
  EXPECT_EQ(Read("12:memory:/job\n").swap_bytes, 0);
  EXPECT_EQ(Read("12:memory:/\n").swap_bytes, -1);
}

TEST_F(ControlGroupTest, UnreadableFilesAreNoLimit) {
  Write("cpu.max", "0 0\n");
  Write("memory.max", "much\n");
  for (const char* groups : {"0::/\n", "", "nothing\n0:\n", "0::no/slash\n"}) {
    const GroupLimits limits = Read(groups);
    EXPECT_EQ(limits.cores, 0) << groups;
    EXPECT_EQ(limits.memory_bytes, -1) << groups;
    EXPECT_EQ(limits.free_bytes, -1) << groups;
  }
  EXPECT_EQ(LimitsOfThisGroup("/no/such", "/no/such").cores, 0);
  EXPECT_GE(AllowedCores(), 1);
}

// As by taskset, by the cpuset of a container, or by a batch system, which leave the other cores of the machine visible.
TEST(AllowedCoresTest, CountsThoseOfTheThread) {
  if (omp_get_num_places() > 0) GTEST_SKIP() << "OpenMP was told where its threads run (OMP_PROC_BIND, OMP_PLACES)";
  std::thread([] {
    // The system may have more cores than a cpu_set_t.
    std::vector<cpu_set_t> allowed(256);
    const size_t bytes = allowed.size() * sizeof(cpu_set_t);
    ASSERT_EQ(::sched_getaffinity(0, bytes, allowed.data()), 0);
    size_t core = 0;
    while (!CPU_ISSET_S(core, bytes, allowed.data())) ++core;
    CPU_ZERO_S(bytes, allowed.data());
    CPU_SET_S(core, bytes, allowed.data());
    ASSERT_EQ(::sched_setaffinity(0, bytes, allowed.data()), 0);
    EXPECT_EQ(AllowedCores(), 1);
  }).join();
}

}  // namespace
}  // namespace gradloom
