#include "runtime/data/spill_buffer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <random>
#include <string>

#include "tests/base/temporary_folder.h"

namespace gradloom {
namespace {

// Sets TMPDIR for the lifetime of this object.
class TemporaryFiles {
 public:
  explicit TemporaryFiles(const std::string& folder) {
    if (const char* before = std::getenv("TMPDIR")) before_ = before;
    setenv("TMPDIR", folder.c_str(), 1);
  }
  ~TemporaryFiles() { before_.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", before_.c_str(), 1); }

 private:
  std::string before_;
};

void ExpectRanges(const SpillBuffer& buffer, const std::string& wanted, std::mt19937& random) {
  ASSERT_EQ(buffer.bytes(), static_cast<int64_t>(wanted.size()));
  for (int i = 0; i < 200; ++i) {
    const size_t from = random() % (wanted.size() + 1), bytes = random() % (wanted.size() - from + 1);
    std::string got(bytes, '\0');
    buffer.ReadAt(static_cast<int64_t>(from), got.data(), static_cast<int64_t>(bytes));
    ASSERT_EQ(std::memcmp(got.data(), wanted.data() + from, bytes), 0) << from << " " << bytes;
  }
}

// Pieces of random sizes, with a random memory threshold, so that they end up in memory, in a file, or in both.
TEST(SpillBufferTest, RoundTrip) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const TemporaryFolder folder;
  const TemporaryFiles there(folder.path());
  SpillBuffer probe(0);
  probe.Append("x", 1);
  const bool disk = probe.spilled();  // on some machines the folder for temporary files is in memory
  for (int round = 0; round < 8; ++round) {
    const auto memory_bytes = static_cast<int64_t>(random() % (6 << 20));
    SpillBuffer buffer(memory_bytes);
    std::string all;
    for (int pieces = static_cast<int>(random() % 40); pieces-- > 0;) {
      std::string piece(random() % (1 << 19), '\0');
      for (char& byte : piece) byte = static_cast<char>(random());
      buffer.Append(piece.data(), static_cast<int64_t>(piece.size()));
      all += piece;
    }
    EXPECT_EQ(buffer.spilled(), disk && static_cast<int64_t>(all.size()) > memory_bytes) << all.size() << " " << memory_bytes;
    ExpectRanges(buffer, all, random);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "the file has a name";
}

// From now on no file system has files without a name, like NFS and the overlays of older kernels.
bool ForbidUnnamedFiles() {
  constexpr unsigned kUnnamed = O_TMPFILE & ~O_DIRECTORY;
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kUnnamed, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {static_cast<unsigned short>(std::size(code)), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(SpillBufferTest, NeedsNoFilesWithoutNames) {
  const TemporaryFolder folder;
  const TemporaryFiles there(folder.path());
  SpillBuffer probe(0);
  probe.Append("x", 1);
  if (!probe.spilled()) GTEST_SKIP() << "the folder for temporary files is in memory";
  constexpr int kNoFilters = 77;
  const pid_t child = ::fork();
  if (child == 0) {
    if (!ForbidUnnamedFiles()) ::_exit(kNoFilters);
    EXPECT_LT(::open(folder.path().c_str(), O_TMPFILE | O_RDWR, 0600), 0);
    std::mt19937 random(6);
    const std::string all(9 << 20, 'y');
    SpillBuffer buffer(0);
    buffer.Append(all.data(), static_cast<int64_t>(all.size()));
    EXPECT_TRUE(buffer.spilled());
    EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "the file has a name";
    ExpectRanges(buffer, all, random);
    ::_exit(HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoFilters) GTEST_SKIP() << "the system has no filters of system calls";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(SpillBufferTest, StaysInMemoryWithoutDisk) {
  std::mt19937 random(5);
  const std::string all(9 << 20, 'x');
  for (const char* folder : {"/dev/shm", "/no such folder", "/proc"}) {
    const TemporaryFiles there(folder);
    SpillBuffer buffer(0);
    buffer.Append(all.data(), static_cast<int64_t>(all.size()));
    EXPECT_FALSE(buffer.spilled()) << folder;
    ExpectRanges(buffer, all, random);
  }
}

}  // namespace
}  // namespace gradloom
