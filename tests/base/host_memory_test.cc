#include "runtime/base/host_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
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
