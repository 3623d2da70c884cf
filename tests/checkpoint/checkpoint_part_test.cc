// Tests of checkpoints that several processes write together. Each writes its part and process 0 writes the manifest. Whatever fails or
// dies, the previous checkpoint still loads.
#include "runtime/checkpoint/checkpoint_part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "runtime/base/checked.h"
#include "runtime/base/file.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/session/job_state.h"
#include "tests/base/temporary_folder.h"
#include "tests/checkpoint/faulty_calls.h"
#include "tests/checkpoint/sample_session.h"
#include "tests/comm/forked_job.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

// A plan for `copies` replicas of a model in `parts` parts. The sample's tensors are dealt to the parts in turn; the first is on all.
std::shared_ptr<const Plan> PlanInParts(int parts, int copies = 1) {
  auto plan = std::make_shared<Plan>(SamplePlan());
  plan->places.assign(static_cast<size_t>(parts), {});
  Entry entry;
  for (int rank = 0; rank < parts * copies; ++rank) entry.ranks.emplace_back().program = rank % parts;
  plan->entries = {entry};
  for (int place = 0; place < parts; ++place) plan->programs.emplace_back().place = place;
  int turn = 0;
  for (StateTensor& state : plan->state) {
    if (&state != plan->state.data()) state.places = {turn++ % parts};
    for (size_t i = 0; i < plan->places.size(); ++i) {
      if (state.in_place(static_cast<int>(i))) state.offset = std::max(state.offset, plan->places[i].state_bytes);
    }
    for (size_t i = 0; i < plan->places.size(); ++i) {
      if (state.in_place(static_cast<int>(i))) plan->places[i].state_bytes = AlignUp(state.offset + state.bytes, kAlignmentBytes);
    }
  }
  return plan;
}

std::string Bits(const TensorView& value) { return {static_cast<const char*>(value.data), static_cast<size_t>(value.bytes())}; }

std::map<std::string, std::string> BitsOf(const Checkpoint& checkpoint) {
  std::map<std::string, std::string> bits;
  for (const auto& [name, type] : checkpoint.types()) bits.emplace(name, Bits(checkpoint.Read(name).view()));
  return bits;
}

// One process of a job whose replicas span several processes.
class Member {
 public:
  Member(const JobTopology& topology, std::shared_ptr<const Plan> plan, const std::string& folder)
      : communicator_(Communicator::Connect(topology, {.timeout = std::chrono::seconds(30)})),
        session_(plan, {.seed = 1234, .executor = {.communicator = communicator_}}) {
    if (leads()) {
      folder_.emplace(folder, IdentityOf(*plan), CheckpointOptions{.keep = 1, .calls = &calls_});
      parts_.emplace(*plan, communicator_);
    } else {
      writer_ = PartWriter::Make(*plan, communicator_, calls_);
    }
  }

  bool leads() const { return communicator_->process() == 0; }
  Session& session() { return session_; }
  Communicator& communicator() { return *communicator_; }
  FaultyCalls& calls() { return calls_; }

  // Returns the error of process 0, or "".
  std::string Save(int64_t step) {
    SetSampleState(session_, step);
    return SaveUnless([](const SavedState&) {});
  }
  std::string SaveFinite() {
    return SaveUnless([](const SavedState& saved) { CheckFinite(saved); });
  }

 private:
  std::string SaveUnless(const std::function<void(const SavedState&)>& check) {
    if (!leads()) {
      if (writer_ != nullptr && writer_->Announced()) writer_->Write(SavedStateOf(session_), check);
      return "";
    }
    parts_->Announce(true);
    std::string error;
    try {
      const SavedState saved = SavedStateOf(session_);
      check(saved);
      folder_->Save(saved, {}, false, &*parts_);
    } catch (const Error& thrown) {
      error = thrown.Describe();
    }
    parts_->Abandon();
    return error;
  }

  FaultyCalls calls_;
  std::shared_ptr<Communicator> communicator_;
  Session session_;
  std::optional<CheckpointFolder> folder_;
  std::optional<PartCollector> parts_;
  std::unique_ptr<PartWriter> writer_;
};

void ExpectAllEnd(const std::vector<ForkedEnd>& ended) {
  for (const ForkedEnd& end : ended) EXPECT_EQ(end.code, 0) << end.words;
}

void Require(bool condition, const std::string& what) {
  if (!condition) throw Error(ErrorCode::kCheckFailed, what);
}

std::vector<std::string> Unfinished(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (ParseCheckpointName(entry.path().filename().string()) == CheckpointName::kUnfinished) names.push_back(entry.path().filename());
  }
  return names;
}

TEST(CheckpointPartTest, EachTensorIsWrittenByItsFirstHolder) {
  // The numbers of processes, parts and replicas, and of the processes that write.
  struct Case {
    int world, parts, copies;
    size_t writers;
  };
  for (const Case& c : {Case{2, 2, 1, 2}, Case{3, 3, 1, 3}, Case{4, 2, 2, 2}, Case{3, 3, 2, 2}, Case{2, 2, 2, 1}, Case{2, 3, 1, 2}}) {
    SCOPED_TRACE(std::to_string(c.world) + " processes, " + std::to_string(c.parts) + " parts, " + std::to_string(c.copies) + " copies");
    const TemporaryFolder folder;
    const auto plan = PlanInParts(c.parts, c.copies);
    ExpectAllEnd(RunForked(c.world, [&](const JobTopology& topology) {
      Member member(topology, plan, folder.path());
      for (const int64_t step : {1, 2}) Require(member.Save(step).empty(), "a save failed");
      member.communicator().Leave();
    }));
    const Checkpoint checkpoint = Checkpoint::Load(folder / "step-000002");
    EXPECT_EQ(BitsOf(checkpoint), SampleBits(2));
    EXPECT_EQ(checkpoint.manifest().files.size(), c.writers);
    // Restores into a single process.
    Session whole(plan, {.seed = 1234});
    checkpoint.Restore(whole, IdentityOf(*plan));
    EXPECT_EQ(BitsOf(whole), SampleBits(2));
    EXPECT_EQ(whole.step(), 2);
    EXPECT_FALSE(fs::exists(folder / "step-000001"));
    EXPECT_TRUE(Unfinished(folder.path()).empty());
  }
}

TEST(JobStateTest, BroadcastsStateToItsHoldersAndGathersIt) {
  struct Case {
    int world, parts, copies;
  };
  for (const Case& c : {Case{2, 2, 1}, Case{3, 3, 2}, Case{5, 3, 2}}) {
    const auto plan = PlanInParts(c.parts, c.copies);
    ExpectAllEnd(RunForked(c.world, [&](const JobTopology& topology) {
      const auto communicator = Communicator::Connect(topology);
      Session session(plan, {.executor = {.communicator = communicator}});
      Session whole(plan);
      const auto check = [&](int64_t step) {
        std::map<std::string, std::string> own;
        for (const StateTensor& state : plan->state) {
          if (session.Holds(state)) own.emplace(state.name, Bits(session.Get(state.name).view()));
        }
        const auto wanted = SampleBits(step);
        for (const auto& [name, bits] : own) Require(wanted.at(name) == bits, "'" + name + "' has come as something else");
        if (topology.rank != 0) return SendState(session, *communicator);
        StateOfJob state(session, communicator.get());
        for (const auto& [name, bits] : wanted)
          Require(Bits(state.Read(name).view()) == bits, "'" + name + "' was given as something else");
        state.End();
      };
      // Process 0 holds the state of a checkpoint, the others hold nothing.
      SetSampleState(whole, 5);
      const ReadState given = [&](const std::string& name) { return whole.Get(name); };
      if (topology.rank == 0) SetSampleState(session, 5);
      BroadcastState(session, *communicator, topology.rank == 0 ? given : ReadState());
      check(5);
      // The first holder of a tensor has its value, later holders have a different one.
      for (const StateTensor& state : plan->state) {
        SetSampleState(whole, HoldersOf(state, *plan, *communicator).front() == topology.rank ? 6 : 7);
        session.Set(state.name, whole.Get(state.name).view());
      }
      BroadcastState(session, *communicator, {});
      check(6);
      communicator->Leave();
    }));
  }
}

// In one job, each call of one process fails in turn. Process 0 reports the failure and the process at fault, and the next save succeeds.
class PartFaultTest : public testing::TestWithParam<int> {};

TEST_P(PartFaultTest, FailedSaveIsDiscardedAndTheNextSucceeds) {
  const TemporaryFolder folder;
  const auto plan = PlanInParts(3);
  const int faulty = GetParam();
  const auto ended = RunForked(3, [&](const JobTopology& topology) {
    Member member(topology, plan, folder.path());
    Require(member.Save(1).empty(), "the first save failed");
    int64_t step = 1;
    int failed = 0;
    for (int n = 0;; ++n) {
      const int before = static_cast<int>(member.calls().log().size());
      if (topology.rank == faulty) member.calls().FailAt(before + n, before + n, ENOSPC);
      const std::string error = member.Save(++step);
      const bool over = topology.rank == faulty && static_cast<int>(member.calls().log().size()) <= before + n;
      member.calls().FailAt(-1, -1, 0);
      const std::vector<std::string> all = member.communicator().AllGather(over ? "over" : error.empty() ? "" : "failed");
      if (topology.rank == 0) {
        failed += error.empty() ? 0 : 1;
        if (faulty != 0 && !error.empty()) {
          Require(error.find("rank " + std::to_string(faulty) + " (") != std::string::npos, error);
          Require(error.find("E-RESOURCE") != std::string::npos, error);
        }
        // The failed save leaves nothing behind, and the previous checkpoint is intact.
        for (const std::string& name : Unfinished(folder.path())) Require(name.find(".tmp.") == std::string::npos, name + ": " + error);
        const FoundCheckpoint found = FindNewestCheckpoint(folder.path());
        Require(found.checkpoint.has_value(), "nothing loads");
        const int64_t saved = found.checkpoint->manifest().step;
        Require(saved == step || (!error.empty() && saved == step - 1), "step " + std::to_string(saved));
        Require(BitsOf(*found.checkpoint) == SampleBits(saved), "other bits");
      }
      Require(member.Save(++step).empty(), "the save after a failed one failed");
      if (all[static_cast<size_t>(faulty)] == "over") break;
    }
    if (topology.rank == 0) Say(std::to_string(failed));
    member.communicator().Leave();
  });
  ExpectAllEnd(ended);
  // At least the calls that write, create and sync fail the save. A failure to close a folder or to remove an old checkpoint does not.
  EXPECT_GE(std::atoi(ended[0].words.c_str()), faulty == 0 ? 10 : 5);
}

INSTANTIATE_TEST_SUITE_P(Processes, PartFaultTest, testing::Values(0, 1, 2),
                         [](const auto& info) { return "Of" + std::to_string(info.param); });

// A process ends at each of its calls of a save, also in the middle of a write.
TEST(CheckpointPartTest, PreviousCheckpointLoadsAfterAnyProcessDies) {
  const auto plan = PlanInParts(2);
  for (const int victim : {0, 1}) {
    int olds = 0, news = 0;
    for (int n = 0;; ++n) {
      SCOPED_TRACE("call " + std::to_string(n) + " of " + std::to_string(victim));
      const TemporaryFolder folder;
      const auto ended = RunForked(2, [&](const JobTopology& topology) {
        Member member(topology, plan, folder.path());
        Require(member.Save(1).empty(), "the first save failed");
        member.communicator().AllGather("");
        const int before = static_cast<int>(member.calls().log().size());
        if (topology.rank == victim) member.calls().FailAt(before + n, before + n, 0);
        const std::string error = member.Save(2);
        // The others do not wait for it forever.
        member.communicator().Leave();
        Require(error.empty(), error);
      });
      const bool died = ended[static_cast<size_t>(victim)].code == FaultyCalls::kExitCode;
      EXPECT_EQ(ended[static_cast<size_t>(1 - victim)].code, died ? ExitCode(ErrorCode::kPeer) : 0) << ended[0].words << ended[1].words;
      const FoundCheckpoint found = FindNewestCheckpoint(folder.path());
      ASSERT_TRUE(found.checkpoint);
      const int64_t step = found.checkpoint->manifest().step;
      EXPECT_TRUE(step == 2 || (died && step == 1)) << step;
      EXPECT_EQ(BitsOf(*found.checkpoint), SampleBits(step));
      // The next process that opens the folder finds no leftovers.
      CheckpointFolder(folder.path(), IdentityOf(*plan));
      EXPECT_TRUE(Unfinished(folder.path()).empty());
      if (!died) break;
      (step == 2 ? news : olds) += 1;
    }
    EXPECT_GT(olds, 4);
    EXPECT_EQ(news > 0, victim == 0);
  }
}

TEST(CheckpointPartTest, RefusesToSaveNonFiniteValues) {
  const TemporaryFolder folder;
  const auto plan = PlanInParts(2);
  ExpectAllEnd(RunForked(2, [&](const JobTopology& topology) {
    Member member(topology, plan, folder.path());
    const auto nan = [&](const std::string& name, float value) {
      const StateTensor& state = plan->state[static_cast<size_t>(plan->FindState(name))];
      Tensor tensor(state.dtype, state.shape);
      for (float& element : tensor.as<float>()) element = value;
      member.session().Set(name, tensor.view());
    };
    // All processes see the same, whichever of them holds the tensor.
    for (const std::string name : {"fc.weight", "fc.weight/momentum_buffer"}) {
      for (const char* other : {"fc.weight", "fc.weight/momentum_buffer", "empty", "Größe \"x\"\n"}) nan(other, 1);
      Require(member.session().NonFiniteState().empty(), "it is finite");
      nan(name, NAN);
      Require(member.session().NonFiniteState() == name, "not found");
      // If process 0's own state is not finite, no save is begun.
      const std::string said = member.SaveFinite(), whose = name == "fc.weight" ? "" : "rank 1 (";
      if (!member.leads()) continue;
      Require(said.find("E-DIVERGED]: " + whose) != std::string::npos, said);
      Require(said.find("'" + name + "' is not finite after step 0") != std::string::npos, said);
      Require(!FindNewestCheckpoint(folder.path()).checkpoint && Unfinished(folder.path()).empty(), "it was saved");
    }
    Require(member.Save(1).empty(), "the next save failed");
    member.communicator().Leave();
  }));
}

TEST(CheckpointPartTest, RejectsDamagedMissingAndExtraPartsByName) {
  const TemporaryFolder folder;
  const auto plan = PlanInParts(2);
  ExpectAllEnd(RunForked(2, [&](const JobTopology& topology) {
    Member member(topology, plan, folder.path());
    Require(member.Save(1).empty(), "the save failed");
    member.communicator().Leave();
  }));
  const std::string path = folder / "step-000001", part = path + "/rank-1.safetensors", good = ReadWholeFile(part);
  const auto refusal = [&] {
    const Error error = ErrorOf([&] { Checkpoint::Load(path); });
    EXPECT_EQ(error.code(), ErrorCode::kCheckpoint);
    return error.Describe();
  };
  for (size_t i = 0; i < good.size(); i += 7) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    WriteWithoutSync(part, bad);
    ASSERT_NE(refusal().find("rank-1.safetensors"), std::string::npos) << i;
  }
  WriteWithoutSync(part, good);
  fs::rename(part, folder / "elsewhere");
  EXPECT_NE(refusal().find("'rank-1.safetensors' is missing"), std::string::npos);
  fs::rename(folder / "elsewhere", part);
  fs::copy_file(part, path + "/rank-2.safetensors");
  EXPECT_NE(refusal().find("'rank-2.safetensors' does not belong to the checkpoint"), std::string::npos);
  fs::remove(path + "/rank-2.safetensors");
  // One part's file in place of another's.
  fs::copy_file(path + "/rank-0.safetensors", part, fs::copy_options::overwrite_existing);
  EXPECT_NE(refusal().find("rank-1.safetensors"), std::string::npos);
  WriteWithoutSync(part, good);
  Checkpoint::Load(path);
}

}  // namespace
}  // namespace gradloom
