#include "runtime/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

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
