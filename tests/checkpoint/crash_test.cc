// The power fails at any time during a run that saves. The last save that was reported as safe, or a later one, loads, and LATEST and BEST
// name what they did when it was reported, or a later one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string>

#include "runtime/base/file.h"
#include "runtime/checkpoint/checkpoint.h"
#include "tests/base/temporary_folder.h"
#include "tests/checkpoint/crash_disk.h"
#include "tests/checkpoint/sample_session.h"

namespace gradloom {
namespace {

TEST(CrashTest, ReportedSavesSurvivePowerFailure) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "disk");
  CrashDisk disk(folder / "disk");
  std::vector<std::pair<size_t, int64_t>> safe;  // number of calls -> step
  {
    CheckpointFolder checkpoints(folder / "disk/c", IdentityOf(SamplePlan()), {.keep = 2, .calls = &disk});
    Session session = SampleSession();
    // A forward step, the same step twice, and a step back.
    for (int64_t step : {1, 2, 3, 3, 5, 4}) {
      SetSampleState(session, step);
      checkpoints.Save(session, {}, step == 2);
      safe.emplace_back(disk.calls(), step);
    }
  }
  const std::vector<int64_t> steps{1, 2, 3, 3, 5, 4};
  const unsigned seed = std::random_device()();
  std::printf("seed %u, %zu calls\n", seed, disk.calls());
  std::mt19937 random(seed);
  int before = 0, after = 0;
  for (size_t calls = safe.front().first; calls <= disk.calls(); ++calls) {
    const auto saves = std::count_if(safe.begin(), safe.end(), [&](const auto& save) { return save.first <= calls; });
    for (int round = 0; round < 8; ++round) {
      const std::string crashed = folder / "crashed";
      disk.Crash(calls, random, crashed);
      const Restored restored = RestoreNewest(crashed + "/c");
      ASSERT_TRUE(restored.found.checkpoint) << "after " << calls << " calls";
      const int64_t sequence = restored.found.checkpoint->manifest().sequence;
      ASSERT_GE(sequence, saves) << "after " << calls << " calls";
      ASSERT_EQ(restored.step, steps[static_cast<size_t>(sequence) - 1]);
      ASSERT_EQ(restored.bits, SampleBits(restored.step));
      std::string latest = ReadWholeFile(crashed + "/c/LATEST");
      latest.pop_back();
      ASSERT_GE(ReadManifest(crashed + "/c/" + latest).sequence, saves) << "after " << calls << " calls";
      if (saves >= 2) {
        ASSERT_EQ(ReadWholeFile(crashed + "/c/BEST"), "step-000002\n") << "after " << calls << " calls";
        ReadManifest(crashed + "/c/step-000002");
      }
      (sequence == saves ? before : after) += 1;
      std::filesystem::remove_all(crashed);
    }
  }
  EXPECT_GT(before, 100);
  EXPECT_GT(after, 10);
}

}  // namespace
}  // namespace gradloom
