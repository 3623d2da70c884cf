#include "runtime/base/pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gradloom {
namespace {

int64_t Faults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

TEST(Pages, ArePopulatedBeforeTheFirstAccess) {
  const int64_t page = sysconf(_SC_PAGESIZE), pages = 512;
  const auto length = static_cast<size_t>(pages * page);
  void* const mapped = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  // Otherwise one page fault might map a huge page.
  madvise(mapped, length, MADV_NOHUGEPAGE);
  auto* const bytes = static_cast<volatile std::byte*>(mapped);
  // The range starts within the first page and ends within the last; both pages must be populated.
  PopulatePages(static_cast<std::byte*>(mapped) + page / 2, (pages - 1) * page);
  const int64_t before = Faults();
  for (int64_t i = 0; i < pages; ++i) bytes[i * page] = std::byte{1};
  EXPECT_LT(Faults() - before, 16);
  munmap(mapped, length);
}

TEST(Pages, KeepTheirContents) {
  std::vector<unsigned char> bytes(1 << 20);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 7 + 1);
  const std::vector<unsigned char> expected = bytes;
  for (const size_t begin : {0, 1, 4095, 4096, 70'001}) {
    for (const int64_t length : {-1, 0, 1, 4096, 100'000}) PopulatePages(bytes.data() + begin, length);
  }
  EXPECT_EQ(bytes, expected);
}

}  // namespace
}  // namespace gradloom
