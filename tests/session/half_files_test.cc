// A command that is ended while it writes leaves nothing half written, nor what others have left.
#include "tools/run/half_files.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "runtime/base/file.h"
#include "tests/session/temporary_folder.h"

namespace gradloom {
namespace {

// Runs `child` in a process of its own; what that ended by.
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

TEST(HalfFiles, GoWhenASignalEndsTheProcess) {
  const TemporaryFolder folder;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const int status = EndOf([&] {
      ::signal(signal, SIG_DFL);
      for (const char* name : {"model.onnx", "model.onnx.data"}) RemoveHalfFileOnSignal(folder / name);
      AtomicFile probe(folder / "model.onnx"), model(folder / "model.onnx"), data(folder / "model.onnx.data");
      for (AtomicFile* file : {&model, &data}) file->Write("half");
      if (folder.entries() != 3) ::_exit(1);
      ::raise(signal);
    });
    // Whoever waits for it sees what has ended it.
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    EXPECT_EQ(WTERMSIG(status), signal);
    EXPECT_EQ(folder.entries(), 0) << signal;
  }
}

TEST(HalfFiles, WhatIsIgnoredStaysSo) {
  const TemporaryFolder folder;
  const int status = EndOf([&] {
    ::signal(SIGHUP, SIG_IGN);
    RemoveHalfFileOnSignal(folder / "x");
    AtomicFile file(folder / "x");
    ::raise(SIGHUP);
    file.Write("all");
    file.Commit();
  });
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(ReadWholeFile(folder / "x"), "all");
}

TEST(HalfFiles, OfProcessesThatWereKilledGoLater) {
  const TemporaryFolder folder;
  const int status = EndOf([&] {
    AtomicFile file(folder / "x");
    ::raise(SIGKILL);
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(folder.entries(), 1);
  // Names that are not of such a file, and one whose writer lives.
  for (const char* name : {"x.tmp.1", "x.tmp.1.", "x.tmp.a.0", "x.tmp.1.0.y", "y.tmp.99999999.0", "x"}) WriteQuickly(folder / name, "kept");
  AtomicFile writing(folder / "x");
  const int kept = folder.entries() - 1;
  RemoveHalfFileOnSignal(folder / "x");
  EXPECT_EQ(folder.entries(), kept);
  writing.Write("all");
  writing.Commit();
  EXPECT_EQ(ReadWholeFile(folder / "x"), "all");
}

// The number of a process says nothing where another host shares the folder; the lock does.
TEST(HalfFiles, ThatAreBeingWrittenElsewhereStay) {
  const TemporaryFolder folder;
  const std::string theirs = folder / "x.tmp.99999999.0";
  {
    const OutputFile file(theirs);
    RemoveHalfFileOnSignal(folder / "x");
    EXPECT_TRUE(std::filesystem::exists(theirs));
  }
  RemoveHalfFileOnSignal(folder / "x");
  EXPECT_FALSE(std::filesystem::exists(theirs));
}

}  // namespace
}  // namespace gradloom
