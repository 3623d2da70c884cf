#include "runtime/base/run_on_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
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
