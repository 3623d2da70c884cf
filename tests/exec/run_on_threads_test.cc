#include "runtime/base/run_on_threads.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <sched.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace gradloom {
namespace {

TEST(RunOnThreads, CallsEachOnce) {
  for (const int threads : {1, 2, 5}) {
    for (const int64_t n : {0, 1, 3, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(n));
      RunOnThreads(n, threads, [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
      for (const auto& count : calls) EXPECT_EQ(count, 1);
    }
  }
}

// A program may move its threads to other cores at any time.
TEST(NumCores, FollowsTheCoresOfTheThread) {
  const int before = NumCores();
  if (omp_get_num_places() > 0) GTEST_SKIP() << "OpenMP was told where its threads run (OMP_PROC_BIND, OMP_PLACES)";
  std::thread([&] {
    EXPECT_EQ(NumCores(), before);
    // The system may have more cores than a cpu_set_t.
    std::vector<cpu_set_t> allowed(256);
    const size_t bytes = allowed.size() * sizeof(cpu_set_t);
    ASSERT_EQ(::sched_getaffinity(0, bytes, allowed.data()), 0);
    std::vector<cpu_set_t> one(allowed.size());
    size_t core = 0;
    while (!CPU_ISSET_S(core, bytes, allowed.data())) ++core;
    CPU_SET_S(core, bytes, one.data());
    ASSERT_EQ(::sched_setaffinity(0, bytes, one.data()), 0);
    EXPECT_EQ(NumCores(), 1);
    ASSERT_EQ(::sched_setaffinity(0, bytes, allowed.data()), 0);
    EXPECT_EQ(NumCores(), before);
  }).join();
}

TEST(NumCores, IsLimited) {
  const int all = NumCores();
  {
    const CoreLimit none(0);
    EXPECT_EQ(NumCores(), all);
    const CoreLimit one(1);
    EXPECT_EQ(NumCores(), 1);
    const CoreLimit more(1000);
    EXPECT_EQ(NumCores(), 1);
    std::thread([&] { EXPECT_EQ(NumCores(), all); }).join();
  }
  EXPECT_EQ(NumCores(), all);
}

TEST(RunOnThreads, ThrowsTheFirstErrorByPlace) {
  for (const int threads : {1, 4}) {
    std::atomic<int> calls{0};
    try {
      RunOnThreads(100, threads, [&](int64_t i) {
        ++calls;
        if (i % 10 == 7) throw std::runtime_error(std::to_string(i));
      });
      FAIL() << "the errors are lost";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "7");
    }
    EXPECT_EQ(calls, 100);
  }
}

}  // namespace
}  // namespace gradloom
