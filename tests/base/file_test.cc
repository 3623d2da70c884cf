#include "runtime/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>

#include "tests/base/temporary_folder.h"

namespace gradloom {
namespace {

TEST(FileTest, WritesAndReadsBack) {
  const TemporaryFolder folder;
  const std::string content("a\0b\n", 4);
  WriteFileAtomically(folder / "x", content);
  EXPECT_EQ(ReadWholeFile(folder / "x"), content);
  WriteFileAtomically(folder / "x", "shorter");
  EXPECT_EQ(ReadWholeFile(folder / "x"), "shorter");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(FileTest, WithoutCommitTheOldFileStays) {
  const TemporaryFolder folder;
  WriteFileAtomically(folder / "x", "old");
  {
    AtomicFile file(folder / "x");
    file.Write("new");
    EXPECT_EQ(folder.entries(), 2);
  }
  EXPECT_EQ(ReadWholeFile(folder / "x"), "old");
  EXPECT_EQ(folder.entries(), 1);
}

// Containers that share a folder number their processes alike.
TEST(FileTest, LeavesTheTemporaryFileOfAnotherWriterWithTheSameProcessId) {
  const TemporaryFolder folder;
  int64_t next = 0;
  {
    const AtomicFile probe(folder / "probe");
    const std::string name = std::filesystem::directory_iterator(folder.path())->path().filename().string();
    next = std::stoll(name.substr(name.rfind('.') + 1)) + 1;
  }
  const std::string theirs = (folder / "x") + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(next);
  OutputFile other(theirs);
  other.Write("half of");
  WriteFileAtomically(folder / "x", "ours");
  EXPECT_EQ(ReadWholeFile(folder / "x"), "ours");
  EXPECT_EQ(ReadWholeFile(theirs), "half of");
  // Nobody has locked it any more, and nobody will rename it.
  other.Write(" theirs");
  other.Finish();
  const timespec long_ago[] = {{.tv_sec = 1'000'000'000, .tv_nsec = 0}, {.tv_sec = 1'000'000'000, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, theirs.c_str(), long_ago, 0), 0);
  const std::string again = (folder / "x") + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(next + 2);
  ASSERT_EQ(::rename(theirs.c_str(), again.c_str()), 0);
  WriteFileAtomically(folder / "x", "ours again");
  EXPECT_EQ(ReadWholeFile(folder / "x"), "ours again");
  EXPECT_EQ(folder.entries(), 1);
}

// A program may handle signals, and a network file system may end a call for one.
TEST(FileTest, RepeatsInterruptedCalls) {
  class Interrupted : public FileCalls {
   public:
    int Open(const char* path, int flags, mode_t mode) override { return IsInterrupted() ? -1 : FileCalls::Open(path, flags, mode); }
    ssize_t Write(int fd, const void* data, size_t bytes) override { return IsInterrupted() ? -1 : FileCalls::Write(fd, data, bytes); }
    int Sync(int fd) override { return IsInterrupted() ? -1 : FileCalls::Sync(fd); }
    int Close(int fd) override {
      // Linux closes the descriptor all the same.
      FileCalls::Close(fd);
      errno = EINTR;
      return -1;
    }

    int interrupted = 0;

   private:
    // Every second call.
    bool IsInterrupted() {
      errno = EINTR;
      ends_ = !ends_;
      interrupted += ends_ ? 1 : 0;
      return ends_;
    }
    bool ends_ = false;
  };
  const TemporaryFolder folder;
  Interrupted calls;
  WriteFileAtomically(folder / "x", "content", calls);
  EXPECT_EQ(ReadWholeFile(folder / "x"), "content");
  EXPECT_EQ(calls.interrupted, 5);  // open, write, sync, and for the folder open and sync
}

// Some network file systems, and those of virtual machines, cannot sync a folder.
TEST(FileTest, SyncsFoldersWhereTheSystemCan) {
  class Refusing : public FileCalls {
   public:
    explicit Refusing(int error) : error_(error) {}
    int Sync(int fd) override {
      struct stat status;
      EXPECT_EQ(::fstat(fd, &status), 0);
      errno = error_;
      return S_ISDIR(status.st_mode) ? -1 : 0;
    }

   private:
    const int error_;
  };
  const TemporaryFolder folder;
  for (const int error : {EINVAL, EBADF, ENOSYS, EOPNOTSUPP}) {
    Refusing calls(error);
    EXPECT_NO_THROW(WriteFileAtomically(folder / "x", "content", calls)) << error;
  }
  for (const int error : {EIO, ENOSPC, EDQUOT}) {
    Refusing calls(error);
    EXPECT_THROW(WriteFileAtomically(folder / "x", "content", calls), Error) << error;
  }
}

// The name is allowed, but not the longer one under which it is first written.
TEST(FileTest, SaysThatANameIsTooLong) {
  const TemporaryFolder folder;
  const Error error = ErrorOf([&] { WriteFileAtomically(folder / std::string(250, 'x'), "content"); });
  EXPECT_EQ(error.code(), ErrorCode::kResource);
  EXPECT_TRUE(error.help().starts_with("use a shorter name")) << error.help();
  EXPECT_NO_THROW(WriteFileAtomically(folder / std::string(231, 'x'), "content"));
}

// A server may have closed its standard streams, and a library in it may print.
TEST(FileTest, IsNotAStandardStream) {
  class NotesDescriptor : public FileCalls {
   public:
    ssize_t Write(int fd, const void* data, size_t bytes) override {
      written_to = fd;
      return FileCalls::Write(fd, data, bytes);
    }
    int written_to = -1;
  };
  const TemporaryFolder folder;
  NotesDescriptor calls;
  const int input = ::dup(STDIN_FILENO);
  ::close(STDIN_FILENO);
  WriteFileAtomically(folder / "x", "content", calls);
  EXPECT_EQ(::fcntl(STDIN_FILENO, F_GETFD), -1) << "it is free again";
  if (input >= 0) {
    ::dup2(input, STDIN_FILENO);
    ::close(input);
  }
  EXPECT_GT(calls.written_to, STDERR_FILENO);
  EXPECT_EQ(ReadWholeFile(folder / "x"), "content");
}

TEST(FileTest, SeekOverwrites) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "x");
  file.Write("0123456789");
  file.Seek(2);
  file.Write("ab");
  file.Commit();
  EXPECT_EQ(ReadWholeFile(folder / "x"), "01ab456789");
}

TEST(FileTest, ReadsByRange) {
  const TemporaryFolder folder;
  WriteFileAtomically(folder / "x", "0123456789");
  InputFile file(folder / "x");
  char out[4] = {};
  file.ReadAt(3, out, 3);
  EXPECT_STREQ(out, "345");
  const Error error = ErrorOf([&] { file.ReadAt(8, out, 3); });
  EXPECT_EQ(error.code(), ErrorCode::kIo);
  EXPECT_EQ(error.where(), folder / "x");
}

TEST(FileTest, MissingFileIsNamed) {
  const Error error = ErrorOf([] { ReadWholeFile("/no/such\nfile"); });
  EXPECT_EQ(error.code(), ErrorCode::kIo);
  EXPECT_EQ(error.where(), "/no/such\\x0afile");
  EXPECT_NE(error.message().find("No such file"), std::string::npos) << error.message();
}

TEST(FileTest, ReportsTheLimitOfOpenFiles) {
  const TemporaryFolder folder;
  WriteFileAtomically(folder / "x", "a");
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Error error = ErrorOf([&] { ReadWholeFile(folder / "x"); });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(error.code(), ErrorCode::kResource);
  EXPECT_EQ(error.where(), folder / "x");
  EXPECT_NE(error.message().find("Too many open files"), std::string::npos) << error.message();
}

TEST(FileTest, OnlyRegularFilesAreRead) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  for (const std::string& path : {folder / "fifo", folder.path(), std::string("/dev/zero"), std::string("a\0b", 3)}) {
    EXPECT_EQ(ErrorOf([&] { ReadWholeFile(path); }).code(), ErrorCode::kIo) << path;
  }
}

TEST(FileTest, LimitIsCheckedBeforeReading) {
  const TemporaryFolder folder;
  // A sparse file of 1 TiB takes no space.
  const int fd = ::open((folder / "big").c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_EQ(::ftruncate(fd, off_t{1} << 40), 0);
  ::close(fd);
  EXPECT_EQ(ErrorOf([&] { ReadWholeFile(folder / "big"); }).code(), ErrorCode::kLimit);
  WriteFileAtomically(folder / "x", "0123456789");
  EXPECT_EQ(ReadWholeFile(folder / "x", 10).size(), 10u);
  EXPECT_EQ(ErrorOf([&] { ReadWholeFile(folder / "x", 9); }).code(), ErrorCode::kLimit);
}

TEST(FileTest, FullDiskNamesPathAndFreeBytes) {
  const int fd = ::open("/dev/full", O_WRONLY);
  ASSERT_GE(fd, 0);
  const Error error = ErrorOf([&] { WriteFully(fd, "abc", 3, "/tmp/out.bin"); });
  ::close(fd);
  EXPECT_EQ(error.code(), ErrorCode::kResource);
  EXPECT_EQ(error.where(), "/tmp/out.bin");
  EXPECT_NE(error.message().find("No space left"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("bytes free"), std::string::npos) << error.message();
}

TEST(FileTest, FailedWriteLeavesTheOldFileAlone) {
  const TemporaryFolder folder;
  WriteFileAtomically(folder / "x", "old");
  // The file size limit of the process simulates a full disk.
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = before;
  limit.rlim_cur = 1024;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const Error error = ErrorOf([&] { WriteFileAtomically(folder / "x", std::string(4096, 'n')); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(error.code(), ErrorCode::kResource);
  EXPECT_EQ(ReadWholeFile(folder / "x"), "old");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(FileTest, TargetsThatCannotBeWritten) {
  const TemporaryFolder folder;
  for (const std::string& path : {folder / "no/such/folder", folder.path(), std::string("/dev/null"), std::string()}) {
    EXPECT_EQ(ErrorOf([&] { WriteFileAtomically(path, "x"); }).code(), ErrorCode::kResource) << path;
  }
}

TEST(FileTest, ParentFolder) {
  EXPECT_EQ(FolderOf("a/b"), "a");
  EXPECT_EQ(FolderOf("b"), ".");
  EXPECT_EQ(FolderOf("/b"), "/");
}

}  // namespace
}  // namespace gradloom
