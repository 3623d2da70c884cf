#include "runtime/base/confined_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/base/temporary_folder.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

const NamedBy kBy = {"the list", "list 3", "move it"};

TEST(FileName, OfAFileBelow) {
  for (const char* name : {"a", "a.bin", "./a", "a/b", "a//b", "..a", "a..", "a/...", ".", "-", "a b", "\xc3\xa4", "ab:c"})
    EXPECT_NO_THROW(CheckFileName(name, kBy)) << name;
  EXPECT_NO_THROW(CheckFileName(std::string(4096, 'a'), kBy));
}

TEST(FileName, OfAnythingElse) {
  const std::vector<std::string> names = {"",
                                          "/a",
                                          "/",
                                          "..",
                                          "../a",
                                          "a/..",
                                          "a/../b",
                                          "a/../../b",
                                          "./..",
                                          "a\\b",
                                          "C:a",
                                          "C:/a",
                                          "file://a",
                                          "https://a/b",
                                          std::string("a\0b", 3),
                                          std::string(1, '\0'),
                                          std::string("a\0/../b", 7),
                                          std::string(4097, 'a')};
  for (const std::string& name : names) {
    const Error error = ErrorOf([&] { CheckFileName(name, kBy); });
    EXPECT_EQ(error.code(), ErrorCode::kPath) << name;
    EXPECT_TRUE(std::string(error.what()).find("the list names a file ") != std::string::npos) << error.what();
    EXPECT_TRUE(error.where().starts_with("list 3  file \"")) << error.where();
    EXPECT_EQ(error.help(), "move it");
  }
}

// A folder "in" beside "out", with a file "own" in one and "secret" in the other.
class ConfinedFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* folder : {"in", "in/low", "out"}) fs::create_directory(folder_ / folder);
    for (const char* file : {"in/own", "in/low/own"}) WriteWithoutSync(folder_ / file, "own");
    WriteWithoutSync(folder_ / "out/secret", "secret");
  }

  static std::string ReadOpen(const ConfinedFolder& folder, const std::string& name, int64_t limit_bytes = 100) {
    const InputFile file = folder.Open(name, kBy, limit_bytes);
    std::string content(static_cast<size_t>(file.bytes()), ' ');
    file.ReadAt(0, content.data(), file.bytes());
    return content;
  }
  std::string Read(const std::string& name, int64_t limit_bytes = 100) const {
    return ReadOpen(ConfinedFolder(folder_ / "in"), name, limit_bytes);
  }
  ErrorCode Refused(const std::string& name, int64_t limit_bytes = 100) const {
    return ErrorOf([&] { Read(name, limit_bytes); }).code();
  }

  // The names of links of all kinds, which this creates.
  void FollowLinks() const {
    const auto link = [&](const std::string& name, const std::string& target) { fs::create_symlink(target, folder_ / ("in/" + name)); };
    link("to_own", "own");
    link("to_itself_by_name", folder_ / "in/own");
    link("to_low", "low");
    link("to_low_by_name", folder_ / "in/low");
    link("up_and_down", "../in/own");
    link("to_link", "to_itself_by_name");
    for (const char* name :
         {"own", "./own", "low/own", "to_own", "to_itself_by_name", "to_low/own", "to_low_by_name/own", "up_and_down", "to_link"})
      EXPECT_EQ(Read(name), "own") << name;
    link("out", "../out/secret");
    link("out_by_name", folder_ / "out/secret");
    link("to_out", "../out");
    link("to_out_by_name", folder_ / "out");
    link("to_root", "/");
    link("to_process", "/proc/self");
    link("to_device", "/dev/zero");
    // Begins with the folder's name, but is not in it.
    fs::create_directory(folder_ / "in2");
    WriteWithoutSync(folder_ / "in2/secret", "secret");
    link("to_in2", "../in2/secret");
    for (const char* name : {"out", "out_by_name", "to_out/secret", "to_out_by_name/secret", "to_root/etc/passwd", "to_process/environ",
                             "to_process/exe", "to_device", "to_in2"})
      EXPECT_EQ(Refused(name), ErrorCode::kPath) << name;
    link("to_nothing", "nothing");
    link("to_itself", "to_itself");
    for (const char* name : {"nothing", "to_nothing", "to_itself", "own/", "own/more"}) EXPECT_EQ(Refused(name), ErrorCode::kIo) << name;
  }

  const TemporaryFolder folder_;
};

TEST_F(ConfinedFolderTest, LinksStayInTheFolder) { FollowLinks(); }

// Lets a system call fail with ENOSYS from now on, as in a kernel that is older than the call.
bool Forbid(unsigned call) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {static_cast<unsigned short>(std::size(code)), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_F(ConfinedFolderTest, LinksStayInTheFolderWithoutOpenat2) {
  constexpr int kNoFilters = 77;
  const pid_t child = ::fork();
  if (child == 0) {
    if (!Forbid(SYS_openat2)) ::_exit(kNoFilters);
    FollowLinks();
    ::_exit(HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoFilters) GTEST_SKIP() << "the system has no filters of system calls";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// Hugging Face's cache: the snapshot has only links into the folder of blobs.
TEST_F(ConfinedFolderTest, LinksLeadWhereTheNamingFileIs) {
  WriteWithoutSync(folder_ / "out/list", "");
  fs::create_symlink("../out/list", folder_ / "in/list");
  fs::create_symlink("../out/secret", folder_ / "in/blob");
  fs::create_symlink("/etc/passwd", folder_ / "in/elsewhere");
  EXPECT_EQ(Refused("blob"), ErrorCode::kPath);
  const ConfinedFolder snapshot(folder_ / "in", folder_ / "in/list");
  EXPECT_EQ(ReadOpen(snapshot, "blob"), "secret");
  EXPECT_EQ(ReadOpen(snapshot, "own"), "own");
  EXPECT_EQ(ErrorOf([&] { ReadOpen(snapshot, "elsewhere"); }).code(), ErrorCode::kPath);
  // A naming file that is no link, or is missing, allows nothing more.
  for (const char* file : {"in/own", "in/nothing"})
    EXPECT_EQ(ErrorOf([&] { ReadOpen(ConfinedFolder(folder_ / "in", folder_ / file), "blob"); }).code(), ErrorCode::kPath);
  // The folder itself may be reached through a link.
  fs::create_directory_symlink("in", folder_ / "linked");
  EXPECT_EQ(ReadOpen(ConfinedFolder(folder_ / "linked", folder_ / "linked/list"), "blob"), "secret");
}

TEST_F(ConfinedFolderTest, OpensOnlyRegularFiles) {
  ASSERT_EQ(::mkfifo((folder_ / "in/pipe").c_str(), 0600), 0);
  const fs::path before = fs::current_path();
  fs::current_path(folder_ / "in");  // the address of a socket is short
  const int bound = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, "socket");
  ASSERT_EQ(::bind(bound, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  fs::current_path(before);
  for (const char* name : {"pipe", "socket", "low", "low/", "."}) EXPECT_EQ(Refused(name), ErrorCode::kPath) << name;
  ::close(bound);
}

TEST_F(ConfinedFolderTest, OtherErrors) {
  EXPECT_EQ(Read("own", 3), "own");
  EXPECT_EQ(Refused("own", 2), ErrorCode::kLimit);
  const ConfinedFolder missing(folder_ / "nowhere"), file(folder_ / "in/own");
  EXPECT_EQ(ErrorOf([&] { ReadOpen(missing, "own"); }).code(), ErrorCode::kIo);
  EXPECT_EQ(ErrorOf([&] { ReadOpen(file, "own"); }).code(), ErrorCode::kIo);
}

TEST_F(ConfinedFolderTest, FolderOfTheProcess) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_ / "in");
  EXPECT_EQ(ReadOpen(ConfinedFolder("."), "own"), "own");
  EXPECT_EQ(ReadOpen(ConfinedFolder("/"), (folder_ / "in/own").substr(1)), "own");
  fs::current_path(before);
}

// Another process exchanges the file for a link out of the folder, and a folder on the way likewise.
TEST_F(ConfinedFolderTest, LinksThatChangeLeadNowhereElse) {
  fs::create_symlink(folder_ / "in/own", folder_ / "in/file.0");
  fs::create_symlink(folder_ / "out/secret", folder_ / "in/file.1");
  fs::create_symlink(folder_ / "in/low", folder_ / "in/folder.0");
  fs::create_symlink(folder_ / "out", folder_ / "in/folder.1");
  WriteWithoutSync(folder_ / "out/own", "secret");
  std::atomic<bool> done = false;
  std::thread attacker([&] {
    const auto exchange = [&](const char* one, const char* other) {
      ::syscall(SYS_renameat2, AT_FDCWD, (folder_ / one).c_str(), AT_FDCWD, (folder_ / other).c_str(), RENAME_EXCHANGE);
    };
    while (!done) {
      exchange("in/file.0", "in/file.1");
      exchange("in/folder.0", "in/folder.1");
    }
  });
  const ConfinedFolder folder(folder_ / "in");
  int opened = 0;
  for (int i = 0; i < 4000; ++i) {
    for (const char* name : {"file.0", "folder.0/own"}) {
      try {
        EXPECT_EQ(ReadOpen(folder, name), "own");
        ++opened;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kPath) << error.Describe();
      }
    }
  }
  done = true;
  attacker.join();
  EXPECT_GT(opened, 0);
}

}  // namespace
}  // namespace gradloom
