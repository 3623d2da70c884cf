#include "runtime/data/spill_buffer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "runtime/data/column_major.h"
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

TEST(SpillBufferTest, RoomIsTakenAtOnceIfItIsAnnounced) {
  std::mt19937 random(6);
  const std::string all(6 << 20, 'y');
  const TemporaryFolder folder;
  for (const std::string& files : {folder.path(), std::string("/dev/shm")}) {
    const TemporaryFiles there(files);
    SpillBuffer buffer(1 << 20);
    buffer.Reserve(std::ssize(all));
    const bool spilled = buffer.spilled();
    for (size_t at = 0; at < all.size(); at += 1 << 20) buffer.Append(all.data() + at, 1 << 20);
    EXPECT_EQ(buffer.spilled(), spilled);
    EXPECT_TRUE(buffer.is_large());
    ExpectRanges(buffer, all, random);
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Without a disk, and with too little memory.
TEST(SpillBufferTest, ThatThereIsNoRoomIsAnError) {
  const TemporaryFiles there("/dev/shm");
  const auto limited = [] {
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t limit = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{100} << 20);
    const rlimit few{limit, limit};
    if (setrlimit(RLIMIT_AS, &few) != 0) ::_exit(1);
    const Error announced = ErrorOf([] { SpillBuffer(0, "x.csv").Reserve(200 << 20); });
    std::fprintf(stderr, "%s\n", announced.Describe().c_str());
    // One that grows takes less to spare if only that fits.
    const std::string piece(8 << 20, 'x');
    {
      SpillBuffer buffer(0);
      buffer.Reserve(40 << 20);
      for (int i = 0; i < 6; ++i) buffer.Append(piece.data(), std::ssize(piece));
    }
    // It reports it before it fails to allocate.
    const Error grown = ErrorOf([&] {
      SpillBuffer buffer(0);
      for (int i = 0; i < 20; ++i) buffer.Append(piece.data(), std::ssize(piece));
    });
    ::_exit(announced.message().starts_with("a copy of the data in memory needs 200 MiB of memory, but ") && announced.where() == "x.csv" &&
                    grown.message().starts_with("a copy of the data in memory needs ")
                ? ExitCode(grown.code())
                : 1);
  };
  EXPECT_EXIT(limited(), ::testing::ExitedWithCode(ExitCode(ErrorCode::kResource)), "TMPDIR");
}
#endif

// Column-major order as numpy writes it, in blocks of all sizes.
TEST(ColumnMajor, RowsInOrder) {
  std::mt19937 random(7);
  for (const Shape& shape :
       {Shape{1, 1}, Shape{5, 3}, Shape{700, 2}, Shape{3, 700}, Shape{40, 3, 5, 2}, Shape{1500, 4}, Shape{0, 4}, Shape{4, 0}}) {
    for (const DType dtype : {DType::kUint8, DType::kFloat16, DType::kFloat32, DType::kInt64}) {
      const int64_t elements = shape.elements(), size = DTypeBytes(dtype);
      std::string wanted(static_cast<size_t>(elements * size), '\0'), stored = wanted;
      for (char& byte : wanted) byte = static_cast<char>(random());
      for (int64_t i = 0; i < elements; ++i) {
        int64_t rest = i, at = 0;
        std::vector<int64_t> steps{1};
        for (int axis = 1; axis < shape.rank(); ++axis) steps.push_back(steps.back() * shape[axis - 1]);
        for (int axis = shape.rank(); axis-- > 0; rest /= shape[axis]) at += rest % shape[axis] * steps[static_cast<size_t>(axis)];
        std::memcpy(stored.data() + at * size, wanted.data() + i * size, static_cast<size_t>(size));
      }
      const StoredArray array{dtype, false, shape, [&](int64_t offset, void* out, int64_t bytes) {
                                ASSERT_LE(offset + bytes, std::ssize(stored));
                                std::memcpy(out, stored.data() + offset, static_cast<size_t>(bytes));
                              }};
      for (const int64_t block : {1, 64, 1000, 5000, 1 << 20}) {
        std::string read;
        ReadRowMajor(array, block,
                     [&](const void* data, int64_t bytes) { read.append(static_cast<const char*>(data), static_cast<size_t>(bytes)); });
        EXPECT_EQ(read, wanted) << shape.ToString() << " " << DTypeName(dtype) << " " << block;
      }
    }
  }
}

}  // namespace
}  // namespace gradloom
