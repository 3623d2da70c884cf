#include "runtime/base/host_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "tests/base/temporary_folder.h"

namespace gradloom {
namespace {

TEST(HostMemory, MoreThanTheMachineHasIsRefused) {
  const int64_t free = FreeHostBytes();
  EXPECT_GT(free, 0);
  RequireHostMemory(free / 4, "a quarter", "", "");
  const Error error = ErrorOf([] { RequireHostMemory(int64_t{1} << 50, "the array 'x'", "x.npy", "use fewer samples"); });
  EXPECT_EQ(error.code(), ErrorCode::kResource);
  EXPECT_TRUE(error.message().starts_with("the array 'x' needs 1073741824 MiB of memory, but ")) << error.message();
  EXPECT_TRUE(error.message().ends_with(" MiB are free")) << error.message();
  EXPECT_EQ(error.where(), "x.npy");
  EXPECT_EQ(error.help(), "use fewer samples, or use a machine with more memory");
  EXPECT_EQ(ErrorOf([] { RequireHostMemory(INT64_MAX, "all", "", ""); }).help(), "use a machine with more memory");
}

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(HostMemory, WhatTheSystemGivesBackIsAvailable) {
  const TemporaryFolder proc;
  EXPECT_EQ(MemoryOfMachine(proc.path()).available, -1) << "without /proc";
  WriteWithoutSync(proc / "meminfo", "MemTotal:  9000 kB\nMemAvailable:  2048 kB\nHugePages_Total:  0\nSwapFree:  1024 kB\n");
  EXPECT_EQ(MemoryOfMachine(proc.path()).available, 2 * kMiB);
  EXPECT_EQ(MemoryOfMachine(proc.path()).swap, kMiB);
  std::filesystem::create_directories(proc / "spl/kstat/zfs");
  const std::string head = "13 1 0x01 123 33456 1234567 7654321\nname                            type data\nhits 4 99999999\n";
  WriteWithoutSync(proc / "spl/kstat/zfs/arcstats",
                   head + "c_min                           4    1048576\nsize                            4    4194304\n");
  EXPECT_EQ(MemoryOfMachine(proc.path()).available, 5 * kMiB) << "the cache of ZFS shrinks to c_min";
  WriteWithoutSync(proc / "spl/kstat/zfs/arcstats", head + "c_min 4 1048576\nsize 4 5\n");
  EXPECT_EQ(MemoryOfMachine(proc.path()).available, 2 * kMiB);
}

TEST(HostMemory, SwapCountsAsFarAsTheGroupMayUseIt) {
  const MachineMemory machine{.available = 100, .swap = 50}, unknown{.available = -1, .swap = 50};
  EXPECT_EQ(BytesWithSwap(machine, {}), 150);
  EXPECT_EQ(BytesWithSwap(machine, {.free_bytes = 30}), 80);
  EXPECT_EQ(BytesWithSwap(machine, {.free_bytes = 30, .swap_bytes = 20}), 50);
  EXPECT_EQ(BytesWithSwap(machine, {.free_bytes = 30, .swap_bytes = 0}), 30);
  EXPECT_EQ(BytesWithSwap(machine, {.free_bytes = 300, .swap_bytes = 70}), 150);
  EXPECT_EQ(BytesWithSwap(machine, {.swap_bytes = 20}), 120);
  // Then only limits count: what else is known does not include the file cache.
  EXPECT_EQ(BytesWithSwap(unknown, {}), INT64_MAX);
  EXPECT_EQ(BytesWithSwap(unknown, {.free_bytes = 30}), 80);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// A limit of the process: batch systems set it.
TEST(HostMemory, LimitsOfTheProcessCount) {
  for (const auto& [resource, field] : {std::pair(RLIMIT_AS, 0), {RLIMIT_DATA, 5}}) {
    const auto limited = [&, field = field, resource = resource] {
      std::ifstream in("/proc/self/statm");
      rlim_t pages = 0;
      for (int i = 0; i <= field; ++i) in >> pages;
      const rlim_t limit = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{200} << 20);
      const rlimit few{limit, limit};
      if (setrlimit(resource, &few) != 0) ::_exit(1);
      if (FreeHostBytes() > 200 << 20 || FreeHostBytes() < 150 << 20) ::_exit(2);
      RequireHostMemory(100 << 20, "a part", "", "");
      const Error error = ErrorOf([] { RequireHostMemory(300 << 20, "more", "", ""); });
      std::fprintf(stderr, "%s\n", error.Describe().c_str());
      ::_exit(ExitCode(error.code()));
    };
    EXPECT_EXIT(limited(), ::testing::ExitedWithCode(ExitCode(ErrorCode::kResource)), "more needs 300 MiB of memory, but (19|20).");
  }
}
#endif

}  // namespace
}  // namespace gradloom
