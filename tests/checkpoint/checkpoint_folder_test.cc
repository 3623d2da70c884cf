#include "runtime/checkpoint/checkpoint_folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/file.h"
#include "tests/base/temporary_folder.h"
#include "tests/checkpoint/faulty_calls.h"
#include "tests/checkpoint/sample_session.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

const PlanIdentity kPlan = IdentityOf(SamplePlan());

// Saves the sample state of `step` to the folder.
SavedCheckpoint SaveStep(CheckpointFolder& folder, int64_t step, bool best = false) {
  Session session = SampleSession();
  SetSampleState(session, step);
  return folder.Save(session, {}, best);
}

std::set<std::string> Names(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

TEST(CheckpointFolderTest, SaveMakesItsCallsInOrder) {
  const TemporaryFolder folder;
  FaultyCalls calls;
  CheckpointFolder checkpoints(folder / "c", kPlan, {.keep = 1, .calls = &calls});
  SaveStep(checkpoints, 1);
  const size_t start = calls.log().size();
  SaveStep(checkpoints, 2, true);
  const std::string root = folder / "c", pid = std::to_string(::getpid()), tmp = root + "/step-000002.tmp." + pid,
                    old = root + "/step-000001.old." + pid;
  // Consecutive equal calls (a file is written in pieces) count once, and the suffix of a pointer file's temporary name is removed.
  std::vector<std::string> log;
  for (size_t i = start; i < calls.log().size(); ++i) {
    std::string call = calls.log()[i];
    for (const char* pointer : {"/LATEST.tmp.", "/BEST.tmp."}) {
      const size_t at = call.find(pointer);
      if (at == std::string::npos) continue;
      const size_t end = std::min(call.find(' ', at), call.size());
      call.replace(at + std::string(pointer).size(), end - at - std::string(pointer).size(), "*");
    }
    if (log.empty() || log.back() != call) log.push_back(call);
  }
  const std::vector<std::string> wanted{
      "mkdir " + tmp,
      "open " + tmp + "/rank-0.safetensors",
      "write " + tmp + "/rank-0.safetensors",
      "sync " + tmp + "/rank-0.safetensors",
      "close " + tmp + "/rank-0.safetensors",
      "open " + tmp,
      "sync " + tmp,
      "close " + tmp,
      "open " + tmp + "/MANIFEST",
      "write " + tmp + "/MANIFEST",
      "sync " + tmp + "/MANIFEST",
      "close " + tmp + "/MANIFEST",
      "open " + tmp,
      "sync " + tmp,
      "close " + tmp,
      "rename " + tmp + " to " + root + "/step-000002",
      "open " + root,
      "sync " + root,
      "close " + root,
      "open " + root + "/LATEST.tmp.*",
      "write " + root + "/LATEST.tmp.*",
      "sync " + root + "/LATEST.tmp.*",
      "close " + root + "/LATEST.tmp.*",
      "rename " + root + "/LATEST.tmp.* to " + root + "/LATEST",
      "open " + root,
      "sync " + root,
      "close " + root,
      "open " + root + "/BEST.tmp.*",
      "write " + root + "/BEST.tmp.*",
      "sync " + root + "/BEST.tmp.*",
      "close " + root + "/BEST.tmp.*",
      "rename " + root + "/BEST.tmp.* to " + root + "/BEST",
      "open " + root,
      "sync " + root,
      "close " + root,
      "rename " + root + "/step-000001 to " + old,
      "unlink " + old + "/MANIFEST",
      "unlink " + old + "/rank-0.safetensors",
      "rmdir " + old,
  };
  EXPECT_EQ(log, wanted);
}

TEST(CheckpointFolderTest, KeepsTheNewestAndTheBest) {
  const TemporaryFolder folder;
  CheckpointFolder checkpoints(folder.path(), kPlan, {.keep = 2});
  for (int step = 10; step <= 60; step += 10) {
    const SavedCheckpoint saved = SaveStep(checkpoints, step, step == 20);
    EXPECT_TRUE(saved.warnings.empty());
    EXPECT_EQ(saved.path, folder / ("step-0000" + std::to_string(step)));
  }
  EXPECT_EQ(Names(folder.path()), (std::set<std::string>{"LOCK", "LATEST", "BEST", "step-000020", "step-000050", "step-000060"}));
  EXPECT_EQ(ReadWholeFile(folder / "LATEST"), "step-000060\n");
  EXPECT_EQ(checkpoints.BestPath(), folder / "step-000020");
  // A new best checkpoint frees the previous best.
  SaveStep(checkpoints, 70, true);
  EXPECT_EQ(Names(folder.path()), (std::set<std::string>{"LOCK", "LATEST", "BEST", "step-000060", "step-000070"}));
}

// The bytes that this process has read from files.
int64_t BytesRead() {
  std::ifstream file("/proc/self/io");
  std::string name;
  int64_t bytes = 0;
  EXPECT_TRUE(file >> name >> bytes && name == "rchar:");
  return bytes;
}

// Otherwise a run that keeps thousands would read thousands of manifests with each save.
TEST(CheckpointFolderTest, ASaveReadsNoMoreIfManyAreKept) {
  const TemporaryFolder folder;
  CheckpointFolder checkpoints(folder.path(), kPlan, {.keep = 1000});
  std::vector<int64_t> read;
  for (int step = 1; step <= 60; ++step) {
    Session session = SampleSession();
    SetSampleState(session, step);
    const int64_t before = BytesRead();
    checkpoints.Save(session, {});
    read.push_back(BytesRead() - before);
  }
  EXPECT_GT(read[9], 0);
  EXPECT_LT(read[59], read[9] + 1000);
  EXPECT_EQ(Names(folder.path()).size(), 62);
}

void Append(const std::string& path) { std::ofstream(path, std::ios::app) << "x"; }

// Otherwise a good one would be removed in its place.
TEST(CheckpointFolderTest, ADamagedCheckpointDoesNotCount) {
  const TemporaryFolder folder;
  std::optional<CheckpointFolder> checkpoints;
  checkpoints.emplace(folder.path(), kPlan, CheckpointOptions{.keep = 2});
  for (const int64_t step : {1, 2, 3}) EXPECT_TRUE(SaveStep(*checkpoints, step).warnings.empty());
  // A byte of its tensors, which does not change its size, but its time: the clock of file systems has steps of some milliseconds.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  {
    std::fstream file(folder / "step-000003/rank-0.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-1, std::ios::end);
    const auto last = static_cast<char>(file.get());
    file.seekp(-1, std::ios::end);
    file.put(static_cast<char>(~last));
  }
  const std::vector<std::string> warnings = SaveStep(*checkpoints, 4).warnings;
  ASSERT_EQ(warnings.size(), 1);
  EXPECT_NE(warnings[0].find("step-000003' is damaged, and does not count as one of the newest 2: "), std::string::npos) << warnings[0];
  EXPECT_EQ(Names(folder.path()), (std::set<std::string>{"LOCK", "LATEST", "step-000002", "step-000003", "step-000004"}));
  // As soon as there are enough others it is removed like them.
  EXPECT_TRUE(SaveStep(*checkpoints, 5).warnings.empty());
  EXPECT_EQ(Names(folder.path()), (std::set<std::string>{"LOCK", "LATEST", "step-000004", "step-000005"}));
  // By the next process, which has not written it.
  checkpoints.reset();
  Append(folder / "step-000005/rank-0.safetensors");
  checkpoints.emplace(folder.path(), kPlan, CheckpointOptions{.keep = 2});
  EXPECT_EQ(SaveStep(*checkpoints, 6).warnings.size(), 1);
  EXPECT_EQ(Names(folder.path()), (std::set<std::string>{"LOCK", "LATEST", "step-000004", "step-000005", "step-000006"}));
  EXPECT_TRUE(SaveStep(*checkpoints, 7).warnings.empty());
  Append(folder / "step-000007/MANIFEST");
  fs::remove(folder / "step-000006/rank-0.safetensors");
  EXPECT_EQ(SaveStep(*checkpoints, 8).warnings.size(), 2);
  EXPECT_EQ(SaveStep(*checkpoints, 9).warnings.size(), 0);
  EXPECT_EQ(Names(folder.path()), (std::set<std::string>{"LOCK", "LATEST", "step-000008", "step-000009"}));
}

// It is read once, not with each save, as long as nobody changes it.
TEST(CheckpointFolderTest, ASaveReadsWhatWasVerifiedNoMore) {
  const TemporaryFolder folder;
  for (const int64_t step : {1, 2, 3}) SaveStep(*std::make_unique<CheckpointFolder>(folder.path(), kPlan), step);
  CheckpointFolder checkpoints(folder.path(), kPlan);
  std::vector<int64_t> read;
  for (int64_t step = 4; step < 8; ++step) {
    Session session = SampleSession();
    SetSampleState(session, step);
    const int64_t before = BytesRead();
    checkpoints.Save(session, {});
    read.push_back(BytesRead() - before);
  }
  const auto bytes = static_cast<int64_t>(fs::file_size(folder / "step-000007/rank-0.safetensors"));
  EXPECT_GT(read[0], 2 * bytes);
  EXPECT_LT(read[3], bytes);
}

// The process ended right after it had renamed the folder.
TEST(CheckpointFolderTest, NextProcessFinishesAnInterruptedSave) {
  const TemporaryFolder folder;
  CheckpointFolder checkpoints(folder.path(), kPlan, {.keep = 3});
  SaveStep(checkpoints, 10, true);
  SaveStep(checkpoints, 20, true);
  SaveStep(checkpoints, 30);
  const auto finish = [&](const char* name) {
    EXPECT_TRUE(CheckpointFolder(folder.path(), kPlan, {.keep = 1}).FinishSave(name, ReadManifest(folder / name)).empty());
  };
  const auto point = [&](const char* pointer, const std::string& name) {
    fs::remove(folder / pointer);
    WriteWithoutSync(folder / pointer, name + "\n");
  };
  fs::remove(folder / "LOCK");
  // A newer checkpoint does not load, so nothing is removed.
  point("BEST", "step-000010");
  finish("step-000020");
  EXPECT_EQ(ReadWholeFile(folder / "LATEST"), "step-000020\n");
  EXPECT_EQ(ReadWholeFile(folder / "BEST"), "step-000020\n");
  EXPECT_EQ(Names(folder.path()), (std::set<std::string>{"LOCK", "LATEST", "BEST", "step-000010", "step-000020", "step-000030"}));
  // The newest checkpoint was not saved as the best.
  finish("step-000030");
  EXPECT_EQ(ReadWholeFile(folder / "LATEST"), "step-000030\n");
  EXPECT_EQ(ReadWholeFile(folder / "BEST"), "step-000020\n");
  EXPECT_EQ(Names(folder.path()), (std::set<std::string>{"LOCK", "LATEST", "BEST", "step-000020", "step-000030"}));
}

TEST(CheckpointFolderTest, SecondSaveOfAStepReplacesTheFirst) {
  const TemporaryFolder folder;
  CheckpointFolder checkpoints(folder.path(), kPlan, {.keep = 1});
  SaveStep(checkpoints, 5);
  for (const char* name : {"step-000005.2", "step-000005", "step-000005.2"}) {
    EXPECT_EQ(SaveStep(checkpoints, 5).path, folder / name);
    EXPECT_EQ(Names(folder.path()), (std::set<std::string>{"LOCK", "LATEST", name}));
  }
}

// A run goes back to an earlier checkpoint. What it saves from there counts as newer than the checkpoints left from before.
TEST(CheckpointFolderTest, OrdersCheckpointsBySaveTime) {
  const TemporaryFolder folder;
  CheckpointFolder checkpoints(folder.path(), kPlan, {.keep = 2});
  SaveStep(checkpoints, 100);
  SaveStep(checkpoints, 200);
  SaveStep(checkpoints, 150);
  EXPECT_EQ(RestoreNewest(folder.path()).step, 150);
  EXPECT_EQ(Names(folder.path()), (std::set<std::string>{"LOCK", "LATEST", "step-000150", "step-000200"}));
}

TEST(CheckpointFolderTest, LeavesForeignFilesAlone) {
  const TemporaryFolder folder;
  for (const char* name : {"step-000001", "step-000003.tmp.9"}) fs::create_directory(folder / name);
  WriteWithoutSync(folder / "step-000003.tmp.9/rank-0.safetensors", "half");
  WriteWithoutSync(folder / "LATEST.tmp.9.0", "step");
  fs::create_directory(folder / "elsewhere");
  WriteWithoutSync(folder / "elsewhere/precious", "x");
  fs::create_directory_symlink(folder / "elsewhere", folder / "step-000004.tmp.9");
  CheckpointFolder checkpoints(folder.path(), kPlan, {.keep = 1});
  EXPECT_EQ(Names(folder.path()), (std::set<std::string>{"LOCK", "step-000001", "elsewhere"}));
  EXPECT_EQ(checkpoints.leftovers(), (std::vector<std::string>{"step-000003.tmp.9", "step-000004.tmp.9"}));
  for (int step = 5; step < 8; ++step) SaveStep(checkpoints, step);
  EXPECT_EQ(Names(folder.path()), (std::set<std::string>{"LOCK", "LATEST", "step-000001", "elsewhere", "step-000007"}));
  EXPECT_TRUE(fs::exists(folder / "elsewhere/precious"));
}

TEST(CheckpointFolderTest, AllowsOneWriterPerFolder) {
  const TemporaryFolder folder;
  {
    const CheckpointFolder first(folder.path(), kPlan);
    const Error error = ErrorOf([&] { CheckpointFolder(folder.path(), kPlan); });
    EXPECT_EQ(error.code(), ErrorCode::kCheckpoint);
    EXPECT_EQ(error.where(), folder.path());
  }
  CheckpointFolder(folder.path(), kPlan);
  EXPECT_EQ(ErrorOf([&] { CheckpointFolder(folder.path(), kPlan, {.keep = 0}); }).code(), ErrorCode::kConfig);
  EXPECT_EQ(ErrorOf([&] { CheckpointFolder(folder / "no/such", kPlan); }).code(), ErrorCode::kResource);
}

class FaultTest : public testing::TestWithParam<int> {
 protected:
  // Creates a folder with a good checkpoint of step 1, the best one, and one of step 2.
  FaultTest() {
    CheckpointFolder checkpoints(path_, kPlan, {.keep = 1});
    SaveStep(checkpoints, 1, true);
    SaveStep(checkpoints, 2);
  }

  // The calls of a save at step 3 without faults.
  std::vector<std::string> Calls() {
    const TemporaryFolder copy;
    fs::copy(path_, copy / "c", fs::copy_options::recursive);
    FaultyCalls calls;
    CheckpointFolder checkpoints(copy / "c", kPlan, {.keep = 1, .calls = &calls});
    const size_t before = calls.log().size();
    SaveStep(checkpoints, 3, true);
    return {calls.log().begin() + static_cast<std::ptrdiff_t>(before), calls.log().end()};
  }

  // The folder loads, and its state is entirely that of step 2 or entirely that of step 3.
  int64_t CheckFolderState(const std::string& path) {
    const Restored restored = RestoreNewest(path);
    EXPECT_TRUE(restored.step == 2 || restored.step == 3) << restored.step;
    EXPECT_EQ(restored.bits, SampleBits(restored.step));
    return restored.step;
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_ / "c";
};

// Each call of a save fails in turn: either only that call, or that call and all after it.
TEST_P(FaultTest, OldCheckpointLoadsAndErrorNamesTheNeededBytes) {
  const std::vector<std::string> wanted = Calls();
  ASSERT_GT(wanted.size(), 30u);
  int failed = 0;
  for (const bool once : {true, false}) {
    for (int n = 0; n < static_cast<int>(wanted.size()); ++n) {
      SCOPED_TRACE(std::to_string(n) + (once ? " once: " : " on: ") + wanted[static_cast<size_t>(n)]);
      const TemporaryFolder copy;
      const std::string path = copy / "c";
      fs::copy(path_, path, fs::copy_options::recursive);
      FaultyCalls calls;
      CheckpointFolder checkpoints(path, kPlan, {.keep = 1, .calls = &calls});
      const int before = static_cast<int>(calls.log().size());
      calls.FailAt(before + n, once ? before + n : INT_MAX, GetParam());
      bool threw = false;
      std::string message;
      SavedCheckpoint saved;
      try {
        saved = SaveStep(checkpoints, 3, true);
      } catch (const Error& error) {
        threw = true;
        message = error.message();
        EXPECT_EQ(error.code(), ErrorCode::kResource);
        EXPECT_TRUE(error.where().starts_with(path)) << error.where();
        EXPECT_NE(error.message().find("needs 1"), std::string::npos) << error.message();
        EXPECT_EQ(error.message().find("bytes free") != std::string::npos, GetParam() == ENOSPC) << error.message();
      }
      failed += threw ? 1 : 0;
      calls.FailAt(-1, -1, 0);
      // Only a save that was reported as safe is safe, and the old checkpoint was not removed before that.
      const int64_t step = CheckFolderState(path);
      EXPECT_TRUE(threw || step == 3);
      const std::set<std::string> names = Names(path);
      const bool renamed = names.contains("step-000003");
      EXPECT_TRUE(!threw || (names.contains("step-000001") && names.contains("step-000002")));
      if (once) {
        for (const std::string& name : names) EXPECT_EQ(name.find(".tmp."), std::string::npos) << name;
        // A fault may stay silent only if nothing depended on the call: closing a folder.
        EXPECT_TRUE(threw || !saved.warnings.empty() || calls.log()[static_cast<size_t>(before + n)].starts_with("close "));
      }
      EXPECT_EQ(step == 3, renamed);
      EXPECT_TRUE(!threw || renamed == (message.find("is complete") != std::string::npos)) << message;
      // The next save succeeds, and what the failed one left is removed no later than by the next process.
      SaveStep(checkpoints, 4);
      EXPECT_EQ(RestoreNewest(path).step, 4);
    }
  }
  EXPECT_GT(failed, 40);
}

INSTANTIATE_TEST_SUITE_P(Errors, FaultTest, testing::Values(ENOSPC, EIO, EROFS), [](const auto& info) {
  return std::string(info.param == ENOSPC ? "ENOSPC" : info.param == EIO ? "EIO" : "EROFS");
});

using KillTest = FaultTest;

// Runs `child` in a forked process and returns its wait status.
template <typename F>
int InChild(F&& child) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    child();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status;
}

// The process ends at each call of a save: before the call, or in the middle of a write.
TEST_F(KillTest, CheckpointLoadsAfterDeathAtAnyCall) {
  const int count = static_cast<int>(Calls().size());
  int olds = 0, news = 0;
  for (int n = 0; n <= count; ++n) {
    SCOPED_TRACE(n);
    const TemporaryFolder copy;
    const std::string path = copy / "c";
    fs::copy(path_, path, fs::copy_options::recursive);
    const int status = InChild([&] {
      FaultyCalls calls;
      CheckpointFolder checkpoints(path, kPlan, {.keep = 1, .calls = &calls});
      const int before = static_cast<int>(calls.log().size());
      calls.FailAt(before + n, before + n, 0);
      SaveStep(checkpoints, 3, true);
    });
    ASSERT_EQ(WEXITSTATUS(status), n < count ? FaultyCalls::kExitCode : 0);
    (CheckFolderState(path) == 3 ? news : olds) += 1;
    // The next process finds no leftovers and can continue.
    CheckpointFolder checkpoints(path, kPlan, {.keep = 1});
    for (const std::string& name : Names(path)) EXPECT_NE(ParseCheckpointName(name), CheckpointName::kUnfinished) << name;
    SaveStep(checkpoints, 4);
    EXPECT_EQ(RestoreNewest(path).step, 4);
  }
  EXPECT_GT(olds, 10);
  EXPECT_GT(news, 10);
}

// A process that saves continuously is killed with SIGKILL at random times.
TEST(CheckpointFolderTest, CheckpointLoadsAfterKillAtRandomTimes) {
  const TemporaryFolder folder;
  const std::string path = folder / "c";
  {
    CheckpointFolder checkpoints(path, kPlan);
    SaveStep(checkpoints, 1);
  }
  const unsigned seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  int64_t last = 1;
  for (int round = 0; round < 60; ++round) {
    int saved[2];
    ASSERT_EQ(::pipe(saved), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      CheckpointFolder checkpoints(path, kPlan, {.keep = 2});
      Session session = SampleSession();
      for (int64_t step = last + 1;; ++step) {
        SetSampleState(session, step);
        checkpoints.Save(session, {}, step % 3 == 0);
        if (::write(saved[1], "", 1) != 1) ::_exit(1);
      }
    }
    char byte;
    ASSERT_EQ(::read(saved[0], &byte, 1), 1);
    ::usleep(random() % 20000);
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    for (int end : saved) ::close(end);
    const Restored restored = RestoreNewest(path);
    ASSERT_GT(restored.step, last) << "round " << round;
    ASSERT_EQ(restored.bits, SampleBits(restored.step)) << "round " << round;
    for (const SkippedCheckpoint& skipped : restored.found.skipped)
      EXPECT_EQ(ParseCheckpointName(fs::path(skipped.path).filename().string()), CheckpointName::kUnfinished)
          << skipped.path << skipped.why;
    last = restored.step;
  }
}

}  // namespace
}  // namespace gradloom
