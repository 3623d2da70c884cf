// A command that is terminated while it writes leaves no partial file, and removes those that others have left.
#include "tools/run/partial_files.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "runtime/base/file.h"
#include "tests/base/temporary_folder.h"

namespace gradloom {
namespace {

// Runs `child` in a forked process and returns its wait status.
template <typename F>
int EndOf(F&& child) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    child();
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return status;
}

TEST(HalfFiles, AreRemovedWhenASignalEndsTheProcess) {
  const TemporaryFolder folder;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const int status = EndOf([&] {
      ::signal(signal, SIG_DFL);
      for (const char* name : {"model.onnx", "model.onnx.data"}) RemovePartialFileOnSignal(folder / name);
      AtomicFile probe(folder / "model.onnx"), model(folder / "model.onnx"), data(folder / "model.onnx.data");
      for (AtomicFile* file : {&model, &data}) file->Write("half");
      if (folder.entries() != 3) ::_exit(1);
      ::raise(signal);
    });
    // The parent sees which signal ended the process.
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    EXPECT_EQ(WTERMSIG(status), signal);
    EXPECT_EQ(folder.entries(), 0) << signal;
  }
}

TEST(HalfFiles, IgnoredSignalsStayIgnored) {
  const TemporaryFolder folder;
  const int status = EndOf([&] {
    ::signal(SIGHUP, SIG_IGN);
    RemovePartialFileOnSignal(folder / "x");
    AtomicFile file(folder / "x");
    ::raise(SIGHUP);
    file.Write("all");
    file.Commit();
  });
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(ReadWholeFile(folder / "x"), "all");
}

TEST(HalfFiles, OfKilledProcessesAreRemovedLater) {
  const TemporaryFolder folder;
  const int status = EndOf([&] {
    AtomicFile file(folder / "x");
    ::raise(SIGKILL);
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(folder.entries(), 1);
  // Names that do not belong to such a file, and a file whose writer is alive.
  for (const char* name : {"x.tmp.1", "x.tmp.1.", "x.tmp.a.0", "x.tmp.1.0.y", "y.tmp.99999999.0", "x"})
    WriteWithoutSync(folder / name, "kept");
  AtomicFile writing(folder / "x");
  const int kept = folder.entries() - 1;
  RemovePartialFileOnSignal(folder / "x");
  EXPECT_EQ(folder.entries(), kept);
  writing.Write("all");
  writing.Commit();
  EXPECT_EQ(ReadWholeFile(folder / "x"), "all");
}

// The first process of a container has the id of the first process of every other one.
TEST(HalfFiles, OfAnotherContainerStay) {
  const TemporaryFolder folder;
  const int status = EndOf([&] {
    ::signal(SIGTERM, SIG_DFL);
    const std::string beginning = (folder / "x") + ".tmp." + std::to_string(::getpid()) + ".";
    const std::string theirs = beginning + "7", gone = beginning + "8";
    if (::fork() == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const OutputFile file(theirs);
      WriteWithoutSync(folder / "written", "");
      ::pause();
    }
    while (!std::filesystem::exists(folder / "written")) ::usleep(1000);
    WriteWithoutSync(gone, "left by the container before this one");
    std::filesystem::last_write_time(gone, std::filesystem::file_time_type::clock::now() - std::chrono::minutes(5));
    RemovePartialFileOnSignal(folder / "x");
    if (std::filesystem::exists(gone) || !std::filesystem::exists(theirs)) ::_exit(1);
    AtomicFile own(folder / "x"), finished(folder / "x");
    finished.Finish();
    if (folder.entries() != 4) ::_exit(2);
    ::raise(SIGTERM);
  });
  ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
  EXPECT_EQ(folder.entries(), 2);
}

// If another host shares the folder, the process id in the name means nothing; the lock decides.
TEST(HalfFiles, OfWritersOnOtherHostsStay) {
  const TemporaryFolder folder;
  const std::string theirs = folder / "x.tmp.99999999.0";
  {
    const OutputFile file(theirs);
    RemovePartialFileOnSignal(folder / "x");
    EXPECT_TRUE(std::filesystem::exists(theirs));
  }
  RemovePartialFileOnSignal(folder / "x");
  EXPECT_FALSE(std::filesystem::exists(theirs));
}

}  // namespace
}  // namespace gradloom
