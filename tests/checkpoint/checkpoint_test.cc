#include "runtime/checkpoint/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/hash.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/safetensors.h"
#include "tests/base/bytes_read.h"
#include "tests/base/temporary_folder.h"
#include "tests/checkpoint/read_all.h"
#include "tests/checkpoint/sample_session.h"

namespace gradloom {
namespace {

const PlanIdentity kPlan = IdentityOf(SamplePlan());

class CheckpointTest : public testing::Test {
 protected:
  // Saves the sample state of `step` and returns the checkpoint's folder.
  std::string Save(int64_t step, const RunState& state = {}, int64_t seed = 1234) {
    Session session = SampleSession(seed);
    SetSampleState(session, step);
    return CheckpointFolder(folder_.path(), kPlan).Save(session, state).path;
  }

  // Returns the error of restoring into a session of this plan and seed. The session's state must not change.
  Error Refusal(const Checkpoint& checkpoint, const Plan& plan, int64_t seed = 1234) {
    Session session(std::make_shared<const Plan>(plan), {.seed = seed});
    const auto before = BitsOf(session);
    const Error error = ErrorOf([&] { checkpoint.Restore(session, IdentityOf(plan)); });
    EXPECT_EQ(error.code(), ErrorCode::kCheckpoint);
    EXPECT_EQ(error.where(), checkpoint.folder());
    EXPECT_EQ(BitsOf(session), before);
    EXPECT_EQ(session.step(), 0);
    return error;
  }

  TemporaryFolder folder_;
};

TEST_F(CheckpointTest, RestoresAllStateAndCounters) {
  RunState state;
  state.cursor = {3, 17, 64, 1797};
  state.callbacks = {{"early_stop", "2"}, {"best", "0.25 at 7\n\xff"}};
  Session session = SampleSession();
  SetSampleState(session, 7);
  session.set_learning_rate(0.0625);
  CheckpointFolder(folder_.path(), kPlan).Save(session, state);

  const FoundCheckpoint found = FindNewestCheckpoint(folder_.path());
  ASSERT_TRUE(found.checkpoint);
  EXPECT_TRUE(found.skipped.empty());
  Session other = SampleSession();
  found.checkpoint->Restore(other, kPlan);
  EXPECT_EQ(BitsOf(other), SampleBits(7));
  EXPECT_EQ(other.step(), 7);
  EXPECT_EQ(other.batch(), 21);
  EXPECT_EQ(other.learning_rate(), 0.0625);
  EXPECT_EQ(found.checkpoint->manifest().cursor, state.cursor);
  EXPECT_EQ(found.checkpoint->manifest().callbacks, state.callbacks);
}

TEST_F(CheckpointTest, RestoresTheScheduleUnlessARateWasFixed) {
  Save(7);
  Session session = SampleSession();
  session.set_learning_rate(9);
  FindNewestCheckpoint(folder_.path()).checkpoint->Restore(session, kPlan);
  Session other = SampleSession();
  other.set_position(7, 21);
  EXPECT_EQ(session.learning_rate(), other.learning_rate());
}

TEST_F(CheckpointTest, DetectsEveryFlippedByte) {
  const std::string folder = Save(7);
  for (const std::string& name : {std::string("MANIFEST"), RankFileName(0)}) {
    const std::string path = folder + "/" + name, good = ReadWholeFile(path);
    for (size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
      WriteWithoutSync(path, bad);
      const Error error = ErrorOf([&] { Checkpoint::Load(folder); });
      ASSERT_EQ(error.code(), ErrorCode::kCheckpoint) << name << " byte " << i;
      ASSERT_TRUE(error.where().starts_with(path)) << error.where();
    }
    WriteWithoutSync(path, good);
  }
  Checkpoint::Load(folder);
}

TEST_F(CheckpointTest, DetectsEveryTruncation) {
  const std::string folder = Save(7);
  for (const std::string& name : {std::string("MANIFEST"), RankFileName(0)}) {
    const std::string path = folder + "/" + name, good = ReadWholeFile(path);
    for (size_t bytes = 0; bytes < good.size(); bytes += 1 + bytes / 8) {
      WriteWithoutSync(path, good.substr(0, bytes));
      ASSERT_EQ(ErrorOf([&] { Checkpoint::Load(folder); }).code(), ErrorCode::kCheckpoint) << name << " of " << bytes;
    }
    WriteWithoutSync(path, good + '\0');
    ASSERT_EQ(ErrorOf([&] { Checkpoint::Load(folder); }).code(), ErrorCode::kCheckpoint) << name;
    WriteWithoutSync(path, good);
  }
}

TEST_F(CheckpointTest, LoadsTheNewestValidCheckpointAndNamesTheOthers) {
  const std::string first = Save(1), second = Save(2), third = Save(3);
  std::filesystem::remove(third + "/MANIFEST");
  std::string content = ReadWholeFile(second + "/rank-0.safetensors");
  content.back() ^= 1;
  WriteWithoutSync(second + "/rank-0.safetensors", content);
  std::filesystem::create_directory(folder_ / "step-000009.tmp.1");
  std::filesystem::create_directory(folder_ / "notes");

  const Restored restored = RestoreNewest(folder_.path());
  EXPECT_EQ(restored.step, 1);
  EXPECT_EQ(restored.bits, SampleBits(1));
  ASSERT_EQ(restored.found.skipped.size(), 3u);
  EXPECT_EQ(restored.found.skipped[0].path, third);
  EXPECT_NE(restored.found.skipped[0].why.find("no MANIFEST"), std::string::npos) << restored.found.skipped[0].why;
  EXPECT_EQ(restored.found.skipped[1].path, folder_ / "step-000009.tmp.1");
  EXPECT_EQ(restored.found.skipped[2].path, second);
  EXPECT_NE(restored.found.skipped[2].why.find("damaged"), std::string::npos) << restored.found.skipped[2].why;
}

TEST_F(CheckpointTest, DetectsMissingFilesAndFilesOfAnotherStep) {
  const std::string first = Save(1), second = Save(2);
  std::filesystem::copy_file(first + "/rank-0.safetensors", second + "/rank-0.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_NE(ErrorOf([&] { Checkpoint::Load(second); }).message().find("hash"), std::string::npos);
  std::filesystem::remove(second + "/rank-0.safetensors");
  EXPECT_NE(ErrorOf([&] { Checkpoint::Load(second); }).message().find("missing"), std::string::npos);
  EXPECT_EQ(ErrorOf([&] { Checkpoint::Load(folder_ / "step-000003"); }).code(), ErrorCode::kCheckpoint);
}

TEST_F(CheckpointTest, DoesNotFollowLinks) {
  const std::string first = Save(1);
  std::filesystem::create_directory_symlink(first, folder_ / "step-000005");
  std::filesystem::create_directory_symlink("step-000006", folder_ / "step-000006");
  for (const char* name : {"step-000005", "step-000006"}) {
    EXPECT_NE(ErrorOf([&] { Checkpoint::Load(folder_ / name); }).message().find("symbolic link"), std::string::npos);
  }
  const std::string second = Save(2);
  std::filesystem::rename(second + "/rank-0.safetensors", folder_ / "elsewhere");
  std::filesystem::create_symlink(folder_ / "elsewhere", second + "/rank-0.safetensors");
  EXPECT_NE(ErrorOf([&] { Checkpoint::Load(second); }).message().find("not a regular file"), std::string::npos);
  EXPECT_EQ(RestoreNewest(folder_.path()).step, 1);
}

TEST_F(CheckpointTest, RejectsALinkLoop) {
  std::filesystem::create_directory_symlink("loop", folder_ / "loop");
  EXPECT_EQ(ErrorOf([&] { FindNewestCheckpoint(folder_ / "loop"); }).code(), ErrorCode::kIo);
  EXPECT_FALSE(FindNewestCheckpoint(folder_ / "absent").checkpoint);
}

TEST_F(CheckpointTest, RejectsFilesAboveTheSizeLimit) {
  const std::string path = Save(1);
  EXPECT_EQ(ErrorOf([&] { Checkpoint::Load(path, 100); }).code(), ErrorCode::kLimit);
}

TEST_F(CheckpointTest, RejectsDuplicateKeysDespiteAValidHash) {
  const std::string folder = Save(1), path = folder + "/rank-0.safetensors";
  std::string content = ReadWholeFile(path);
  const size_t at = content.find("\"state/uint32\"");
  ASSERT_NE(at, std::string::npos);
  content.replace(at, 14, "\"state/int32\" ");
  WriteWithoutSync(path, content);
  Manifest manifest = ReadManifest(folder);
  manifest.files[0].hash = HashOf(content);
  WriteWithoutSync(folder + "/MANIFEST", EncodeManifest(manifest));
  const Error error = ErrorOf([&] { Checkpoint::Load(folder); });
  EXPECT_EQ(error.code(), ErrorCode::kCheckpoint);
  EXPECT_NE(error.message().find("'state/int32' occurs twice"), std::string::npos) << error.message();
}

TEST_F(CheckpointTest, DetectsAFileThatChangesAfterLoading) {
  const std::string folder = Save(1), path = folder + "/rank-0.safetensors";
  const Checkpoint checkpoint = Checkpoint::Load(folder);
  const std::string content = ReadWholeFile(path);
  // The byte changes in place, as on a failing disk; the header stays valid.
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(content.size()) - 1);
  file.put(static_cast<char>(content.back() ^ 1));
  file.close();
  Session session = SampleSession();
  const Error error = ErrorOf([&] { checkpoint.Restore(session, kPlan); });
  EXPECT_EQ(error.code(), ErrorCode::kCheckpoint);
  EXPECT_NE(error.message().find("has changed since"), std::string::npos) << error.message();
  // Files that are removed in the meantime stay readable for those who have opened them.
  WriteWithoutSync(path, content);
  const Checkpoint again = Checkpoint::Load(folder);
  std::filesystem::remove_all(folder);
  again.Restore(session, kPlan);
  EXPECT_EQ(BitsOf(session), SampleBits(1));
}

// Peak memory of this process since the counter was last reset.
int64_t PeakBytes() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("VmHWM:")) return std::atoll(line.c_str() + 6) * 1024;
  }
  return -1;
}

TEST_F(CheckpointTest, ReadsFilesWithoutHoldingThemInMemory) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer keeps what was freed";
#endif
  constexpr int64_t kTensors = 24, kElements = 1 << 20;
  const std::string path = folder_ / "rank-0.safetensors";
  {
    std::map<std::string, Tensor> tensors;
    for (int64_t i = 0; i < kTensors; ++i) tensors.emplace(std::to_string(i), Tensor::From(std::vector<float>(kElements, i), {kElements}));
    WriteSafetensors(path, tensors);
  }
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  const CheckpointFile described{"rank-0.safetensors", bytes, HashOf(ReadWholeFile(path))};
  if (!(std::ofstream("/proc/self/clear_refs") << "5").flush()) GTEST_SKIP() << "the most that is in memory cannot be counted anew";
  const int64_t before = PeakBytes();
  const VerifiedFile file(path, described, Checkpoint::kLimitBytes, Checkpoint::kMaxTensors);
  for (int64_t i = 0; i < kTensors; ++i) ASSERT_EQ(file.Read(std::to_string(i)).as<float>()[kElements - 1], static_cast<float>(i));
  // A tensor has 4 MiB, the file 96 MiB.
  EXPECT_LT(PeakBytes() - before, bytes / 4);
}

// Once before anything is changed, and once to restore. Warnings about non-finite values come from the first pass.
TEST_F(CheckpointTest, RestoreReadsEachFileTwice) {
  constexpr int64_t kElements = 1 << 20;
  Plan plan = SamplePlan();
  StateTensor large = plan.state.back();
  large.name = "large";
  large.shape = {kElements};
  large.bytes = kElements * 4;
  large.offset = plan.places[0].state_bytes;
  plan.places[0].state_bytes += large.bytes;
  plan.state.push_back(large);
  Session session(std::make_shared<const Plan>(plan), {.seed = 1234});
  std::vector<float> values(kElements);
  values[kElements - 1] = std::numeric_limits<float>::infinity();
  values[7] = std::numeric_limits<float>::quiet_NaN();
  session.Set("large", Tensor::From(values, {kElements}).view());
  CheckpointFolder(folder_.path(), IdentityOf(plan)).Save(session, {});
  const int64_t before = BytesRead();
  if (before < 0) GTEST_SKIP() << "the system does not say what was read";
  const FoundCheckpoint found = FindNewestCheckpoint(folder_.path());
  found.checkpoint->Restore(session, IdentityOf(plan));
  const std::vector<std::string> warnings = found.checkpoint->Warnings();
  EXPECT_LT(BytesRead() - before, 4 * kElements * 9 / 4);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0], "'large' of the checkpoint has 2 values that are NaN or infinite");
}

TEST_F(CheckpointTest, RejectsAnotherModel) {
  const Checkpoint checkpoint = Checkpoint::Load(Save(1));
  Plan plan = SamplePlan();
  plan.model = {"other", "fedcba9876543210", ""};
  const Error error = Refusal(checkpoint, plan);
  EXPECT_NE(error.message().find("'sample' (0123456789abcdef) in the checkpoint, 'other' (fedcba9876543210) in this run"),
            std::string::npos)
      << error.message();
}

TEST_F(CheckpointTest, RejectsDifferentStateByName) {
  const Checkpoint checkpoint = Checkpoint::Load(Save(1));
  Plan plan = SamplePlan();
  for (StateTensor& state : plan.state) {
    if (state.name == "fc.weight/momentum_buffer") state.name = "fc.weight/exp_avg";
    if (state.name == "state/int32") state.dtype = DType::kUint32;
    if (state.name == "state/float32") state.shape = {5, 3};
  }
  const std::string message = Refusal(checkpoint, plan).message();
  for (const char* part : {"'fc.weight/exp_avg' is missing", "'fc.weight/momentum_buffer' is not in the plan",
                           "'state/int32' is int32[3,5] in the checkpoint, uint32[3,5] in the plan",
                           "'state/float32' is float32[3,5] in the checkpoint, float32[5,3] in the plan"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST_F(CheckpointTest, RejectsAnotherSeed) {
  const Error error = Refusal(Checkpoint::Load(Save(1)), SamplePlan(), 99);
  EXPECT_NE(error.message().find("seed 1234, this run has 99"), std::string::npos) << error.message();
  EXPECT_EQ(error.help(), "--seed 1234");
}

TEST_F(CheckpointTest, RejectsAnotherPlanUnlessAllowed) {
  const Checkpoint checkpoint = Checkpoint::Load(Save(1));
  Plan plan = SamplePlan();
  plan.schedule.attributes.set("total_steps", int64_t{200});
  plan.accumulate = 4;
  const std::string message = Refusal(checkpoint, plan).message();
  EXPECT_NE(message.find("batches per update: 1 in the checkpoint, 4 in this run"), std::string::npos) << message;
  EXPECT_NE(message.find("total_steps=100) in the checkpoint"), std::string::npos) << message;
  Session session(std::make_shared<const Plan>(plan), {.seed = 1234});
  checkpoint.Restore(session, IdentityOf(plan), true);
  EXPECT_EQ(BitsOf(session), SampleBits(1));
}

TEST_F(CheckpointTest, LoadsACheckpointInParts) {
  const std::string folder = Save(1), more = folder + "/rank-1.safetensors";
  const std::string empty("\x08\0\0\0\0\0\0\0{}      ", 16);
  WriteWithoutSync(more, empty);
  // A part that the manifest does not list may be the one that is missing.
  EXPECT_EQ(ErrorOf([&] { Checkpoint::Load(folder); }).where(), more);
  Manifest manifest = ReadManifest(folder);
  manifest.world_size = 2;
  manifest.files.push_back({"rank-1.safetensors", 16, HashOf(empty)});
  WriteWithoutSync(folder + "/MANIFEST", EncodeManifest(manifest));
  EXPECT_EQ(RestoreNewest(folder_.path()).bits, SampleBits(1));
}

TEST_F(CheckpointTest, WarnsAboutNaN) {
  Session session = SampleSession();
  const std::vector<float> values{1, std::numeric_limits<float>::quiet_NaN()};
  session.Set("Größe \"x\"\n", Tensor::From(values, {2}).view());
  const Checkpoint checkpoint = Checkpoint::Load(CheckpointFolder(folder_.path(), kPlan).Save(session, {}).path);
  ASSERT_EQ(checkpoint.Warnings().size(), 1u);
  EXPECT_NE(checkpoint.Warnings()[0].find("Größe \"x\"\\x0a' of the checkpoint has 1 value"), std::string::npos)
      << checkpoint.Warnings()[0];
}

TEST_F(CheckpointTest, RestoresWeightsInSeveralFiles) {
  const std::string folder = Save(7);
  const auto tensors = ReadAll(SafetensorsFile(folder + "/" + RankFileName(0)));
  std::map<std::string, std::map<std::string, Tensor>> shards;
  nlohmann::json map;
  for (const auto& [name, tensor] : tensors) {
    const std::string shard = std::to_string(map.size() % 3) + ".safetensors";
    map[name] = shard;
    shards[shard].emplace(name, tensor);
  }
  for (const auto& [shard, part] : shards) WriteSafetensors(folder_ / shard, part);
  const std::string path = folder_ / "weights.safetensors.index.json";
  WriteWithoutSync(path, nlohmann::json{{"weight_map", map}}.dump());

  const Checkpoint checkpoint = Checkpoint::FromFile(path);
  EXPECT_FALSE(checkpoint.has_manifest());
  EXPECT_EQ(checkpoint.types().size(), tensors.size());
  EXPECT_EQ(checkpoint.Warnings(), Checkpoint::Load(folder).Warnings());
  EXPECT_EQ(ErrorOf([&] { checkpoint.Read("absent"); }).code(), ErrorCode::kCheckpoint);
  Session session = SampleSession();
  checkpoint.Restore(session, kPlan);
  EXPECT_EQ(BitsOf(session), SampleBits(7));
  EXPECT_EQ(session.step(), 0);
  // Other weights change nothing.
  Plan other = SamplePlan();
  for (StateTensor& state : other.state) state.name += "?";
  EXPECT_NE(Refusal(checkpoint, other).message().find("none of its tensors"), std::string::npos);
}

// The tensors of one file stay there as well, and one that changes after it was verified is noticed.
TEST_F(CheckpointTest, TensorsOfOneFileStayInIt) {
  const std::string path = folder_ / "whole";
  Session session = SampleSession();
  Checkpoint::Load(Save(7)).Restore(session, kPlan);
  std::string bytes;
  WriteCheckpointFile([&](const void* data, int64_t count) { bytes.append(static_cast<const char*>(data), static_cast<size_t>(count)); },
                      session, ManifestOf(SavedStateOf(session), kPlan));
  WriteWithoutSync(path, bytes);
  for (const bool memory : {false, true}) {
    Session restored = SampleSession();
    (memory ? Checkpoint::FromBytes(bytes, "memory") : Checkpoint::FromFile(path)).Restore(restored, kPlan);
    EXPECT_EQ(BitsOf(restored), SampleBits(7));
  }
  const Checkpoint checkpoint = Checkpoint::FromFile(path);
  std::string damaged = bytes;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  std::ofstream(path, std::ios::binary | std::ios::in).write(damaged.data(), std::ssize(damaged));  // the same file
  Session restored = SampleSession();
  EXPECT_EQ(ErrorOf([&] { checkpoint.Restore(restored, kPlan); }).message(), "the file has changed since it was checked");
  EXPECT_EQ(ErrorOf([&] { Checkpoint::FromFile(path); }).message(), "the file is damaged: its tensors do not match their hash");
  // A file without a hash is not read until its tensors are needed: this one has 1 GiB.
  const std::string header = R"({"w":{"dtype":"F32","shape":[268435456],"data_offsets":[0,1073741824]}})";
  const uint64_t length = header.size();
  WriteWithoutSync(path, std::string(reinterpret_cast<const char*>(&length), 8) + header);
  std::filesystem::resize_file(path, 8 + length + 1073741824);
  const int64_t before = BytesRead();
  EXPECT_EQ(Checkpoint::FromFile(path).types().at("w").shape, Shape{268435456});
  EXPECT_LT(BytesRead() - before, 1 << 20);
}

TEST_F(CheckpointTest, ConvertsWeightsOfOtherFloatingPointTypes) {
  const std::string name = "Größe \"x\"\n", path = folder_ / "weights";
  const Tensor value = Tensor::From<float>({0.1f, -3e-5f}, {2});
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16, DType::kFloat32, DType::kFloat64}) {
    const Tensor stored = Converted(value.view(), dtype);
    WriteSafetensors(path, {{name, stored}});
    Session session = SampleSession();
    Checkpoint::FromFile(path).Restore(session, kPlan);
    const Tensor wanted = Converted(stored.view(), DType::kFloat32), set = session.Get(name);
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(set.as<float>()[i], wanted.as<float>()[i]) << DTypeName(dtype);
  }
  // Eight bits need scales.
  for (const DType dtype : {DType::kInt32, DType::kFloat8E4M3Fn}) {
    WriteSafetensors(path, {{name, Tensor(dtype, {2})}});
    EXPECT_NE(Refusal(Checkpoint::FromFile(path), SamplePlan()).message().find(DTypeName(dtype)), std::string::npos);
  }
}

TEST(CheckpointNameTest, ParsesFolderNames) {
  for (const char* name : {"step-000001", "step-1", "step-12345678", "step-000001.2"})
    EXPECT_EQ(ParseCheckpointName(name), CheckpointName::kCheckpoint) << name;
  for (const char* name : {"step-000001.tmp.7", "step-000001.2.tmp.7", "step-000001.old.7"})
    EXPECT_EQ(ParseCheckpointName(name), CheckpointName::kUnfinished) << name;
  for (const char* name : {"", "step-", "step-x", "step-1.", "step-1.tmp.", "step-1.tmp.x", "step-1/..", "LATEST", "xstep-1", "step-1.2.3"})
    EXPECT_EQ(ParseCheckpointName(name), CheckpointName::kOther) << name;
}

}  // namespace
}  // namespace gradloom
