// Emulated thread blocks detect what they are meant to: a missing barrier, a barrier that not all threads reach, and reads of shared memory
// that nobody has written.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "kernels/cuda/atomics.cuh"
#include "kernels/cuda/block_scan.cuh"
#include "kernels/cuda/lines.cuh"
#include "kernels/cuda/long_block.cuh"
#include "kernels/cuda/shared.cuh"

namespace gradloom::cuda {
namespace {

void Finish() { GRADLOOM_CUDA(cudaDeviceSynchronize()); }

// Counts the launches, of 100, with wrong results. Each thread reads what another has written to shared memory; the barriers before and
// after that read are optional.
int WrongOf100(bool before, bool after) {
  int wrong = 0;
  for (int launch = 0; launch < 100; ++launch) {
    std::vector<int> out(3 * kThreads, -1);
    ForEachRow(3, nullptr, [&](const Block& block, int64_t row) {
      int* const shared = Shared<0, int, kThreads>();
      shared[block.thread()] = static_cast<int>(row) * 1000 + block.thread();
      if (before) block.Sync();
      out[static_cast<size_t>(row) * kThreads + static_cast<size_t>(block.thread())] = shared[(block.thread() + 37) % kThreads];
      if (after) block.Sync();
    });
    Finish();
    for (int k = 0; k < 3 * kThreads; ++k) {
      if (out[static_cast<size_t>(k)] != k / kThreads * 1000 + (k % kThreads + 37) % kThreads) {
        ++wrong;
        break;
      }
    }
  }
  return wrong;
}

TEST(EmulatedBlock, BothBarriersGiveRightResults) { EXPECT_EQ(WrongOf100(true, true), 0); }
TEST(EmulatedBlock, AMissingBarrierGivesWrongResults) { EXPECT_EQ(WrongOf100(false, true), 100); }
TEST(EmulatedBlock, ABarrierMissingBetweenRowsGivesWrongResults) { EXPECT_GT(WrongOf100(true, false), 50); }

// Under ThreadSanitizer: threads that took part in the smaller block's barriers and those that did not meet at the larger one's.
TEST(EmulatedBlock, ALargerBlockFollowsASmallerOne) {
  ForEachRow(1, nullptr, [](const Block& block, int64_t) { block.Sync(); });
  int sum = 0;
  ForEachLongRow(1, nullptr, [&](const LongBlock& block, int64_t) {
    const int all = block.Reduce(block.thread(), Sum{});
    if (block.thread() == 0) sum = all;
  });
  Finish();
  EXPECT_EQ(sum, 511 * 512 / 2);
}

TEST(EmulatedBlock, ReducesOverAllThreads) {
  std::vector<int64_t> sums(5, -1), largest(5, -1);
  ForEachRow(5, nullptr, [&](const Block& block, int64_t row) {
    const int64_t value = row * 7 + block.thread() * block.thread();
    const int64_t sum = block.Reduce(value, Sum{});
    if (block.thread() == 255) sums[static_cast<size_t>(row)] = sum;
    const int64_t most = block.Reduce((block.thread() * 91 + row) % 256, Largest{});
    if (block.thread() == 100) largest[static_cast<size_t>(row)] = most;
  });
  Finish();
  for (int64_t row = 0; row < 5; ++row) {
    EXPECT_EQ(sums[static_cast<size_t>(row)], row * 7 * 256 + 255 * 256 * 511 / 6);
    EXPECT_EQ(largest[static_cast<size_t>(row)], 255);
  }
}

TEST(EmulatedBlock, WarpsReduceOnTheirOwn) {
  std::vector<int> sums(21, -1);
  ForEachRowByWarp(21, nullptr, [&](const Warp& warp, int64_t row) {
    const int sum = warp.Reduce(warp.thread() + static_cast<int>(row), Sum{});
    if (warp.thread() == 3) sums[static_cast<size_t>(row)] = sum;
  });
  Finish();
  for (int row = 0; row < 21; ++row) EXPECT_EQ(sums[static_cast<size_t>(row)], 496 + 32 * row);
}

TEST(EmulatedBlock, SumsInFrontOfEach) {
  std::vector<int64_t> numbers(1000), wanted(1000);
  std::iota(numbers.begin(), numbers.end(), 3);
  std::exclusive_scan(numbers.begin(), numbers.end(), wanted.begin(), int64_t{0});
  ForEachRow(1, nullptr, [&](const Block& block, int64_t) { ExclusiveScanInPlace(block, 1000, numbers.data()); });
  Finish();
  EXPECT_EQ(numbers, wanted);
}

TEST(EmulatedBlock, SharedMemoryIsPoisonedForEachBlock) {
  std::vector<int> found(4, 0);
  for (int launch = 0; launch < 4; ++launch) {
    ForEachRow(1, nullptr, [&](const Block& block, int64_t) {
      int* const shared = Shared<0, int, 1>();
      if (block.thread() == 7) found[static_cast<size_t>(launch)] = *shared;
      block.Sync();
      if (block.thread() == 0) *shared = 12;
    });
    Finish();
  }
  EXPECT_EQ(found, std::vector<int>(4, static_cast<int>(0xCBCBCBCB)));
}

TEST(EmulatedBlock, ElementsAreVisitedInNoFixedOrder) {
  bool ascending = true;
  std::vector<int64_t> seen;
  ForEachElement(1000, nullptr, [&](int64_t i) { seen.push_back(i); });
  Finish();
  std::vector<int64_t> sorted(1000);
  std::iota(sorted.begin(), sorted.end(), 0);
  ascending = seen == sorted;
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, sorted);
  EXPECT_FALSE(ascending);
}

TEST(EmulatedBlock, AtomicUpdatesAreNotLost) {
  int64_t sum = 5, most = -1;
  ForEachElement(1000, nullptr, [&](int64_t i) {
    AtomicAdd(&sum, i);
    AtomicMax(&most, (i * 7) % 1000);
  });
  Finish();
  EXPECT_EQ(sum, 5 + 499500);
  EXPECT_EQ(most, 999);
}

TEST(EmulatedBlockDeathTest, ABarrierThatNotAllThreadsReachAborts) {
  const auto leave = [] {
    ForEachRow(1, nullptr, [](const Block& block, int64_t) {
      if (block.thread() == 3) return;
      block.Sync();
    });
    Finish();
  };
  EXPECT_DEATH(leave(), "some threads wait for their block, but others have exited");
  const auto part = [] {
    ForEachRow(1, nullptr, [](const Block& block, int64_t) {
      if (block.thread() < 128)
        block.Sync();
      else
        block.Sync();
    });
    Finish();
  };
  EXPECT_DEATH(part(), "threads of a block wait at different barriers");
  const auto warp = [] {
    ForEachRowByWarp(1, nullptr, [](const Warp& warp, int64_t) {
      if (warp.thread() > 0) warp.Sync();
    });
    Finish();
  };
  EXPECT_DEATH(warp(), "some threads wait for their warp");
}

#if defined(__SANITIZE_ADDRESS__)
TEST(EmulatedBlock, ReportsAccessesBehindSharedArrays) {
  const auto write = [](int at) {
    ForEachRow(1, nullptr, [&](const Block& block, int64_t) {
      int* const first = Shared<0, int, kThreads>();
      int* const second = Shared<1, int, kThreads>();
      second[block.thread()] = 1;
      if (block.thread() == 7) first[at] = 1;
    });
    Finish();
  };
  write(kThreads - 1);
  EXPECT_DEATH(write(kThreads), "use-after-poison");
}
#endif

}  // namespace
}  // namespace gradloom::cuda
