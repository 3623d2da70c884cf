#include "runtime/plan/verify_plan.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>

#include "gtest/gtest.h"
#include "runtime/base/error.h"
#include "tests/verify/faults.h"
#include "tests/verify/plan_builder.h"

namespace gradloom {
namespace {

constexpr int64_t kN = 16;

TEST(VerifyPlan, AcceptsSoundPlans) {
  for (const auto& [name, plan] : SamplePlans()) EXPECT_EQ(Text(Verify(plan, FindTestKernel)), "") << name;
}

TEST(VerifyPlan, ThrowsTheFirstFaultWithItsLocation) {
  Plan plan = Sample("training");
  plan.programs.Mutable(0).instructions[1].stream = 3;
  try {
    VerifyOrThrow(plan, FindTestKernel);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPlan);
    EXPECT_NE(error.message().find("stream 3 is out of range"), std::string::npos) << error.message();
    EXPECT_NE(error.where().find("program 0, #1 launch test.Map on stream 3 ('/Map1')"), std::string::npos) << error.where();
  }
}

TEST(VerifyPlan, LimitsPlacesAndRanks) {
  Plan plan = Sample("training");
  plan.entries[0].ranks.resize(200000, plan.entries[0].ranks[0]);
  ExpectFault(plan, "ranks", {"entry 0", "has 200000 ranks"});
  plan.places.resize(4097);
  ExpectFault(plan, "names", {"has 4097 places"});
}

// A 100 x 100 tensor filled by a slow kernel on one stream and read on another without a wait.
Plan Hazard(bool with_event) {
  Plan plan = EmptyPlan();
  ProgramBuilder b(plan, 2);
  const int filled = b.Value("filled", 100 * 100), sum = b.Value("sum", 100 * 100);
  b.Launch("Fill", {}, {filled}, 0);
  if (with_event) b.Order(0, 1);
  b.Launch("Map", {filled}, {sum}, 1);
  plan.programs.push_back(b.Take());
  AddEntry(plan, EntryKind::kPredict, 1, {0}).fetches.push_back({"sum", sum, -1});
  return plan;
}

TEST(VerifyPlan, FindsRaceBetweenTwoStreams) {
  EXPECT_EQ(Text(Verify(Hazard(true), FindTestKernel)), "");
  const std::vector<PlanFault> faults = Verify(Hazard(false), FindTestKernel);
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].check, "order");
  EXPECT_EQ(faults[0].where, "program 0, #1 launch test.Map on stream 1 ('/Map1')");
  EXPECT_EQ(faults[0].message,
            "reads 'filled' (transient bytes 0 to 40000), but nothing makes it wait for #0 launch test.Fill on stream 0 ('/Fill0'), "
            "which writes it. A failing order: stream 1 up to #1, and only then #0");
}

TEST(VerifyPlan, NoInstructionReadsWhatALaterPhaseWrites) {
  using enum PlanPhase;
  for (const PlanPhase writes : {kNone, kForward, kBackward, kUpdate}) {
    for (const PlanPhase reads : {kNone, kForward, kBackward, kUpdate}) {
      Plan plan = Hazard(true);
      std::vector<Instruction>& instructions = plan.programs.Mutable(0).instructions;
      instructions.front().phase = writes;
      instructions.back().phase = reads;
      if (reads == kNone || writes <= reads) {
        EXPECT_EQ(Text(Verify(plan, FindTestKernel)), "");
      } else {
        ExpectFault(plan, "values", {"launch test.Map", "reads 'filled'", "in an earlier phase than #0 launch test.Fill"});
      }
    }
  }
}

TEST(VerifyPlan, FindsEarlyReuse) {
  // On one stream: h's memory is reused before its last reader.
  Plan plan = Sample("training");
  plan.programs.Mutable(0).buffers[6].offset = plan.programs.Mutable(0).buffers[4].offset;  // loss on h
  ExpectFault(plan, "values", {"#4 launch test.Map", "reads 'h'", "#2 launch test.Mix", "'loss'"});
  // On two streams: nothing makes the second writer wait for the reader.
  plan = EmptyPlan();
  ProgramBuilder b(plan, 2);
  const int a = b.Value("a", kN), c = b.Value("c", kN), d = b.Value("d", kN, 0);
  b.Launch("Fill", {}, {a});
  b.Order(0, 1);
  b.Launch("Map", {a}, {c}, 1);
  b.Launch("Fill", {}, {d});
  plan.programs.push_back(b.Take());
  AddEntry(plan, EntryKind::kPredict, 1, {0});
  ExpectFault(
      plan, "order",
      {"#4 launch test.Fill", "writes 'd'", "#3 launch test.Map on stream 1", "which reads 'a'", "stream 0 up to #4, and only then #3"});
}

TEST(VerifyPlan, VerifiesOnlyTheNewPartOfAnExtendedPlan) {
  const Plan proved = Hazard(true);
  const auto with = [&](const Program& program) {
    Plan plan = proved;
    plan.programs.push_back(program);
    AddEntry(plan, EntryKind::kPredict, 2, {1}).fetches = plan.entries[0].fetches;
    return plan;
  };
  const Plan unordered = Hazard(false);
  const Program& hazard = unordered.programs[0];
  EXPECT_EQ(Text(Verify(with(proved.programs[0]), FindTestKernel, &proved)), "");
  std::vector<PlanFault> faults = Verify(with(hazard), FindTestKernel, &proved);
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].where, "program 1, #1 launch test.Map on stream 1 ('/Map1')");
  // A new entry for a verified program: its fetches have not been verified.
  Plan plan = proved;
  AddEntry(plan, EntryKind::kPredict, 2, {0}).fetches = {{"filled", plan.programs[0].instructions[0].uses[0].buffer, -1}};
  EXPECT_EQ(Text(Verify(plan, FindTestKernel, &proved)), Text(Verify(plan, FindTestKernel)));
  plan.entries[1].fetches[0].buffer = 99;
  EXPECT_NE(Text(Verify(plan, FindTestKernel, &proved)), "");
  // A plan that does not extend the other is verified completely.
  plan = with(proved.programs[0]);
  plan.programs.Mutable(0) = hazard;
  faults = Verify(plan, FindTestKernel, &proved);
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].where, "program 0, #1 launch test.Map on stream 1 ('/Map1')");
  // Whatever was verified before is trusted.
  const Plan believed = Hazard(false);
  EXPECT_EQ(Text(Verify(believed, FindTestKernel, &believed)), "");
}

TEST(VerifyPlan, OrdersByTransitivity) {
  // Stream 2 waits for stream 1 only, which has waited for stream 0.
  Plan plan = EmptyPlan();
  ProgramBuilder b(plan, 3);
  const int a = b.Value("a", kN), c = b.Value("c", kN), d = b.Value("d", kN);
  b.Launch("Fill", {}, {a}, 0);
  b.Order(0, 1);
  b.Launch("Fill", {}, {c}, 1);
  b.Order(1, 2);
  b.Launch("Mix", {a, c}, {d}, 2);
  plan.programs.push_back(b.Take());
  AddEntry(plan, EntryKind::kPredict, 1, {0});
  EXPECT_EQ(Text(Verify(plan, FindTestKernel)), "");
  // A record that precedes the work does not cover it.
  std::swap(plan.programs.Mutable(0).instructions[0], plan.programs.Mutable(0).instructions[1]);
  ExpectFault(plan, "order", {"#6 launch test.Mix on stream 2", "reads 'a'"});
}

TEST(VerifyPlan, FindsUpdatesThatComeTooEarly) {
  Plan plan = Sample("replicas");
  std::vector<Instruction>& list = plan.programs.Mutable(0).instructions;
  // The update of w1 before its gradient has read it.
  const auto update = std::find_if(list.begin(), list.end(), [](const Instruction& i) { return i.op == "Update"; }) + 1;
  const Instruction moved = *update;
  list.erase(update);
  list.insert(list.begin(), moved);
  ExpectFault(plan, "values", {"reads 'w1'", "over it as 'w1''"});
  ExpectFault(plan, "values", {"#0 launch test.Update", "reads 'g1 sum'", "before"});
}

// Rows of a table by indices from the batch, and an update of another weight, on separate streams. `waits` says which of them waits.
enum class Waits { kNo, kUpdate, kRows };
Plan RowsAndUpdate(Waits waits, int64_t table = kN) {
  Plan plan = EmptyPlan();
  plan.properties.emplace(kFailedSteps, kChangeNothing);
  const int w = AddState(plan, "w", kN);
  AddConstant(plan, "table", kN);
  AddConstant(plan, "other table", table);
  ProgramBuilder b(plan, 2);
  const int indices = b.Feed(0, kN, DType::kInt64), x = b.Feed(1, kN), before = b.State(w);
  const int rows = b.Value("rows", kN), again = b.Value("again", kN), next = b.State(w, "'");
  b.Gather(b.Constant(0), indices, rows, 0);
  if (waits == Waits::kUpdate) b.Order(0, 1);
  b.Launch("Update", {before, x}, {next}, 1);
  if (waits == Waits::kRows) b.Order(1, 0);
  // The same indices again, which have already been checked.
  b.Gather(b.Constant(1), indices, again, 0);
  plan.programs.push_back(b.Take());
  Entry& entry = AddEntry(plan, EntryKind::kStep, kN, {0});
  entry.feeds.push_back({"indices", DType::kInt64, {kN}, 0});
  entry.feeds.push_back({"x", DType::kFloat32, {kN}, 0});
  entry.fetches.push_back({"rows", rows, 0});
  entry.fetches.push_back({"again", again, 0});
  return plan;
}

TEST(VerifyPlan, FailedStepMustNotChangeState) {
  EXPECT_EQ(Text(Verify(RowsAndUpdate(Waits::kUpdate), FindTestKernel)), "");
  const auto refused = [](const Plan& plan, std::string_view by) {
    ExpectFault(plan, "order", {"launch test.Update on stream 1", "changes state 'w'", by, "which may refuse the batch"});
  };
  refused(RowsAndUpdate(Waits::kNo), "#0 launch test.Gather on stream 0");
  // A table with fewer rows needs a check of its own.
  refused(RowsAndUpdate(Waits::kUpdate, kN - 1), "#4 launch test.Gather on stream 0");
  // An update before the last instruction that may refuse the batch is an error too.
  refused(RowsAndUpdate(Waits::kRows), "#0 launch test.Gather on stream 0");
  // Older plans make no such promise.
  Plan before = RowsAndUpdate(Waits::kNo);
  before.properties.clear();
  EXPECT_EQ(Text(Verify(before, FindTestKernel)), "");
}

// The test kernels for a device on which a step continues after a refusal. `kKeepsState` says whether the rows check for a refusal before
// they update state.
template <bool kKeepsState>
const KernelRow* FindDeviceKernel(std::string_view name) {
  static std::map<std::string_view, KernelRow> rows;
  const KernelRow* const row = FindTestKernel(name);
  if (row == nullptr) return nullptr;
  KernelRow& of_device = rows.emplace(row->name, *row).first->second;
  of_device.device = DeviceKind::kCuda;
  of_device.preserves_state_on_refusal = kKeepsState;
  return &of_device;
}

TEST(VerifyPlan, DeviceKernelsMustKeepStateInAFailedStep) {
  Plan plan = RowsAndUpdate(Waits::kUpdate);
  plan.targets.front().device = DeviceKind::kCuda;
  EXPECT_EQ(Text(Verify(plan, FindDeviceKernel<true>)), "");
  const std::string refused = Text(Verify(plan, FindDeviceKernel<false>));
  EXPECT_NE(refused.find("changes state 'w', but does not check whether the batch was refused"), std::string::npos) << refused;
  // If nothing can refuse the batch, no check is needed.
  Plan taken = Sample("training");
  taken.targets.front().device = DeviceKind::kCuda;
  EXPECT_EQ(Text(Verify(taken, FindDeviceKernel<false>)), "");
}

// Two replicas of a model. Each checks its indices, all-reduces and updates, in this order or with the update first.
Plan ReplicasThatMayRefuse(bool updates_first) {
  Plan plan = EmptyPlan();
  plan.properties.emplace(kFailedSteps, kChangeNothing);
  const int w = AddState(plan, "w", kN);
  AddConstant(plan, "table", kN);
  ProgramBuilder b(plan);
  const int indices = b.Feed(0, kN, DType::kInt64), before = b.State(w), table = b.Constant(0);
  const int rows = b.Value("rows", kN), sum = b.Value("sum", kN), next = b.State(w, "'");
  b.Gather(table, indices, rows);
  if (updates_first) b.Launch("Update", {before, rows}, {next});
  b.Collective(Collective::kAllReduceSum, rows, sum);
  if (!updates_first) b.Launch("Update", {before, sum}, {next});
  plan.programs.push_back(b.Take());
  Entry& entry = AddEntry(plan, EntryKind::kStep, 2 * kN, {0, 0});
  entry.feeds.push_back({"indices", DType::kInt64, {2 * kN}, 0});
  if (updates_first) entry.fetches.push_back({"sum", sum, 0});
  return plan;
}

TEST(VerifyPlan, FailedStepOnAnotherRankMustNotChangeState) {
  EXPECT_EQ(Text(Verify(ReplicasThatMayRefuse(false), FindTestKernel)), "");
  ExpectFault(ReplicasThatMayRefuse(true), "ranks",
              {"rank 0", "changes state before it has synchronized with rank 1", "which may refuse the batch"});
}

TEST(VerifyPlan, RejectsReadsOfUnwrittenMemory) {
  Plan plan = Sample("training");
  plan.programs.Mutable(0).instructions.erase(plan.programs.Mutable(0).instructions.begin());
  ExpectFault(plan, "values", {"reads 'h'", "which is never written"});
}

TEST(VerifyPlan, RejectsHolesInABucket) {
  Plan plan = Sample("replicas");
  for (Buffer& buffer : plan.programs.Mutable(0).buffers) {
    if (buffer.name == "g1") buffer.bytes = 64, buffer.shape = {16};
  }
  // The kernel row rejects the operands as well, so only the bucket is used here.
  for (Instruction& i : plan.programs.Mutable(0).instructions) {
    if (i.op == "Map") i.op = "Fill", i.kernel = "test.Fill", i.uses.erase(i.uses.begin());
  }
  ExpectFault(plan, "values", {"reads 'bucket'"});
}

// A view of rows with padding after each may have other leading axes, and nothing else.
TEST(VerifyPlan, ViewsOfPaddedRowsHaveTheSameRows) {
  const auto is_view = [](const Shape& shape, const Layout& layout, int64_t elements) {
    Plan plan = EmptyPlan();
    ProgramBuilder b(plan, 1);
    const int rows = b.Value("rows", 4 * 8), view = b.Part("view", rows, 0, elements);
    b.Launch("Fill", {}, {rows}, 0);
    plan.programs.push_back(b.Take());
    AddEntry(plan, EntryKind::kPredict, 1, {0});
    std::vector<Buffer>& buffers = plan.programs.Mutable(0).buffers;
    buffers[static_cast<size_t>(rows)].shape = {4, 7};
    buffers[static_cast<size_t>(rows)].layout = Layout::FromString(":1x8");
    buffers[static_cast<size_t>(view)].shape = shape;
    buffers[static_cast<size_t>(view)].layout = layout;
    return Text(Verify(plan, FindTestKernel)).find("is not a range of buffer") == std::string::npos;
  };
  EXPECT_TRUE(is_view({4, 7}, Layout::FromString(":1x8"), 32));
  EXPECT_TRUE(is_view({2, 1, 2, 7}, Layout::FromString(":3x8"), 32));
  EXPECT_FALSE(is_view({2, 2, 6}, Layout::FromString(":2x8"), 32)) << "shorter rows, of which padding is read";
  EXPECT_FALSE(is_view({2, 4, 3}, Layout::FromString(":2x4"), 32)) << "other padding";
  EXPECT_FALSE(is_view({4, 8}, {}, 32)) << "no padding";
  EXPECT_FALSE(is_view({7, 4}, Layout::FromString(":0x8"), 32)) << "padding of another axis";
  EXPECT_FALSE(is_view({7, 4}, Layout::FromString("10:0x8"), 32)) << "other order";
  EXPECT_FALSE(is_view({2, 7}, Layout::FromString(":1x8"), 16)) << "some of the rows";
}

TEST(VerifyPlan, RejectsWritesToFeedsAndConstants) {
  Plan plan = Sample("training");
  plan.programs.Mutable(0).instructions[0].uses.back().buffer = 0;  // x
  ExpectFault(plan, "writes", {"#0 launch test.Mix", "'feed0'", "read-only"});
  plan = Sample("training");
  plan.programs.Mutable(0).instructions[1].uses.back().buffer = 3;  // half
  ExpectFault(plan, "writes", {"'half'", "read-only"});
}

TEST(VerifyPlan, RejectsStateChangesInEvaluation) {
  Plan plan = Sample("training");
  plan.entries[0].kind = EntryKind::kEval;
  ExpectFault(plan, "writes", {"changes state 'w'", "#6 launch test.Update"});
  plan.entries[0].kind = EntryKind::kAccumulate;
  ExpectFault(plan, "writes", {"changes state 'w/momentum'"});
}

TEST(VerifyPlan, RejectsOutputsOnInputsThatTheKernelStillReads) {
  Plan plan = Sample("training");
  plan.programs.Mutable(0).buffers[6].offset = plan.programs.Mutable(0).buffers[5].offset;  // loss on y, another input of the same Mix
  ExpectFault(plan, "writes", {"#2 launch test.Mix", "over its own operand 'y'"});
  // Aliasing the first input is permitted, but the second input has the same memory.
  plan = Sample("training");
  plan.programs.Mutable(0).instructions[4].uses[1].buffer = plan.programs.Mutable(0).instructions[4].uses[0].buffer;
  ExpectFault(plan, "writes", {"#4 launch test.Map", "over its own operand 'dy'"});
}

TEST(VerifyPlan, RejectsEventsThatDoNotPair) {
  Plan plan = Sample("branches");
  std::vector<Instruction>& list = plan.programs.Mutable(0).instructions;
  std::swap(list[1], list[2]);
  ExpectFault(plan, "order", {"#1 wait event 0 on stream 1", "recorded only later, by #2 record event 0 on stream 0"});
  plan = Sample("branches");
  plan.programs.Mutable(0).instructions[1].event = 2;
  ExpectFault(plan, "order", {"wait event 0", "nothing records the event"});
  ExpectFault(plan, "order", {"was already recorded by #1"});
}

TEST(VerifyPlan, RejectsAWaitCycle) {
  Plan plan = EmptyPlan();
  ProgramBuilder b(plan, 2);
  b.program().num_events = 2;
  b.Wait(0, 1);
  b.Wait(1, 0);
  b.Record(0, 0);
  b.Record(1, 1);
  plan.programs.push_back(b.Take());
  AddEntry(plan, EntryKind::kPredict, 1, {0});
  ExpectFault(plan, "order", {"#0 wait event 1 on stream 0", "by #3 record event 1 on stream 1", "the two streams deadlock"});
}

// Gives one rank its own copy of the program.
Program& OwnProgram(Plan& plan, size_t rank) {
  RankBinding& binding = plan.entries[0].ranks[rank];
  plan.programs.push_back(plan.programs.Mutable(static_cast<size_t>(binding.program)));
  binding.program = static_cast<int>(plan.programs.size()) - 1;
  return plan.programs.Mutable(plan.programs.size() - 1);
}

TEST(VerifyPlan, RejectsMismatchedCollectives) {
  // One rank does not all-reduce, and updates with its own gradient.
  Plan plan = Sample("uneven replicas");
  Program* own = &OwnProgram(plan, 1);
  std::erase_if(own->instructions, [](const Instruction& i) { return i.kind == InstructionKind::kCollective; });
  own->instructions.back().uses[1].buffer = 1;
  std::erase_if(own->buffers, [](const Buffer& buffer) { return buffer.name == "sum"; });
  for (Instruction& i : own->instructions) {
    for (Use& use : i.uses) use.buffer -= use.buffer > 1 ? 1 : 0;
  }
  for (Buffer& buffer : own->buffers) buffer.whole -= buffer.whole > 1 ? 1 : 0;
  ExpectFault(plan, "ranks", {"collective", "waits forever", "rank 1, at its end, never matches it"});

  plan = Sample("uneven replicas");
  plan.entries[0].ranks[3].groups = {1};
  plan.groups.push_back({{3}});
  ExpectFault(plan, "ranks", {"waits forever", "rank 3"});

  plan = Sample("replicas");
  own = &OwnProgram(plan, 2);
  for (Instruction& i : own->instructions) {
    if (i.kind == InstructionKind::kCollective) i.group = 1 - i.group;
  }
  ExpectFault(plan, "ranks", {"waits forever"});

  plan = Sample("sharded");
  OwnProgram(plan, 1).instructions[4].root = 1;
  ExpectFault(plan, "ranks", {"is matched with", "another collective, tag, type, root, layout or size"});
  plan = Sample("sharded");
  for (Instruction& i : plan.programs.Mutable(0).instructions) i.root = i.collective == Collective::kBroadcast ? 2 : 0;
  ExpectFault(plan, "ranks", {"root 2 is out of range"});
}

TEST(VerifyPlan, RejectsCollectivesOfDifferentSizes) {
  Plan plan = Sample("uneven replicas");
  // The short rank sums half as many elements.
  for (Buffer& buffer : plan.programs.Mutable(2).buffers) {
    if (buffer.arena == Arena::kTransient) buffer.shape = {8}, buffer.bytes = 32;
  }
  plan.programs.Mutable(2).instructions.pop_back();
  std::erase_if(plan.programs.Mutable(2).buffers, [](const Buffer& b) { return b.arena == Arena::kState; });
  for (Instruction& i : plan.programs.Mutable(2).instructions) {
    for (Use& use : i.uses) --use.buffer;
  }
  ExpectFault(plan, "ranks", {"another collective, tag, type, root, layout or size (32 and 64 bytes)", "rank 3"});
}

// A partial sum is not a gradient, and only sums can be partial.
TEST(VerifyPlan, RejectsPartialSumsThatAreNotReduced) {
  Plan plan = Sample("parts");
  for (Instruction& i : plan.programs.Mutable(1).instructions) {
    if (i.op == "Update") i.uses[1].buffer = 1;
  }
  ExpectFault(plan, "ranks", {"Update", "reads state 'w/grad_sum', of which each rank holds only a part"});
  plan = Sample("parts");
  plan.entries[1].kind = EntryKind::kStep;
  plan.entries[0].kind = EntryKind::kStep;
  ExpectFault(plan, "ranks", {"test.Map", "reads state 'w/grad_sum', of which each rank holds only a part"});
  plan = Sample("parts");
  plan.programs.Mutable(1).instructions[0].collective = Collective::kBroadcast;
  plan.programs.Mutable(1).instructions[0].root = 0;
  ExpectFault(plan, "ranks", {"reads state 'w/grad_sum', of which each rank holds only a part"});
  plan = Sample("parts");
  plan.programs.Mutable(2).instructions[2].collective = Collective::kBroadcast;
  plan.programs.Mutable(2).instructions[2].root = 0;
  ExpectFault(plan, "ranks", {"test.Map", "reads state 'w/grad_sum', of which each rank holds only a part"});
  plan = Sample("parts");
  plan.accumulate = 1;
  ExpectFault(plan, "names", {"'w/grad_sum'", "has a part on each rank"});
  plan = Sample("parts");
  plan.state[0].partial = true;
  ExpectFault(plan, "names", {"'w'", "has a part on each rank"});
}

// A plan with the same tensors that are equal on all ranks instead of partial does not extend it.
TEST(VerifyPlan, ExtendsPlansWithTheSameParts) {
  const Plan base = Sample("parts");
  Plan other = base;
  EXPECT_TRUE(Extends(other, base));
  other.state[1].partial = false;
  EXPECT_FALSE(Extends(other, base));
}

TEST(VerifyPlan, RejectsUnorderedCommunication) {
  Plan plan = EmptyPlan();
  ProgramBuilder b(plan, 2);
  const int a = b.Value("a", kN), c = b.Value("c", kN), a2 = b.Value("a2", kN), c2 = b.Value("c2", kN);
  b.Launch("Fill", {}, {a}, 0);
  b.Launch("Fill", {}, {c}, 1);
  b.Collective(Collective::kAllReduceSum, a, a2, 0, 0);
  b.Collective(Collective::kAllReduceSum, c, c2, 0, 1);
  plan.programs.push_back(b.Take());
  AddEntry(plan, EntryKind::kPredict, 2, {0, 0});
  ExpectFault(plan, "order",
              {"#3 collective on stream 1", "wait for #2 collective on stream 0", "ranks could communicate in different orders"});
}

TEST(VerifyPlan, RejectsMismatchedTransfers) {
  Plan plan = Sample("stages");
  std::swap(plan.programs.Mutable(0).instructions[1], plan.programs.Mutable(0).instructions[2]);
  ExpectFault(plan, "ranks", {"rank 0, #1 recv", "waits forever", "rank 1, #0 recv"});
  plan = Sample("stages");
  plan.entries[0].ranks[0].peers = {0, 0};
  ExpectFault(plan, "ranks", {"peer slot 1 does not name another rank"});
}

TEST(VerifyPlan, ChecksBodies) {
  Plan plan = Sample("control");
  const auto body = [&](size_t instruction, size_t k) -> Program& { return plan.programs.Mutable(0).instructions[instruction].bodies[k]; };
  body(2, 0).instructions.erase(body(2, 0).instructions.begin() + 3);  // the wait of the join
  ExpectFault(plan, "order", {"program 0, #2, body 0", "reads 'u'"});

  plan = Sample("control");
  body(2, 1).instructions.clear();
  body(2, 1).buffers.clear();
  ExpectFault(plan, "values", {"program 0, #2, body 1, at its end", "'y'"});

  plan = Sample("control");
  body(2, 1).buffers[0].offset = plan.programs[0].buffers[5].offset;  // reads a buffer that its instruction does not list
  ExpectFault(plan, "bounds", {"program 0, #2, body 1", "reads 'a'"});

  plan = Sample("control");
  body(5, 0).buffers[2].offset = body(5, 0).buffers[1].offset;  // overwrites a captured value
  ExpectFault(plan, "bounds", {"program 0, #5, body 0", "writes 't'"});

  plan = Sample("control");
  plan.programs.Mutable(0).instructions[5].uses[3].buffer = 3;  // a carried value without initial value
  ExpectFault(plan, "values", {"#5 loop", "'carried''", "no value before the first iteration"});
}

TEST(VerifyPlan, BodiesAreOfThePhaseOfTheirInstruction) {
  Plan plan = Sample("control");
  Instruction* outer = nullptr;
  for (Instruction& instruction : plan.programs.Mutable(0).instructions) {
    if (!instruction.bodies.empty()) outer = &instruction;
  }
  ASSERT_NE(outer, nullptr);
  outer->bodies[0].instructions[0].phase = PlanPhase::kBackward;
  ExpectFault(plan, "values", {"body 0", "is of phase 'backward', unlike the instruction around it"});
  outer->phase = PlanPhase::kBackward;
  EXPECT_EQ(Text(Verify(plan, FindTestKernel)), "");
}

TEST(VerifyPlan, RejectsDeepNesting) {
  Plan plan = EmptyPlan();
  const std::function<Program(int)> nested = [&](int depth) {
    ProgramBuilder b(plan);
    if (depth > 0) b.Loop({-1, -1}, {}, nested(depth - 1), 1);
    return b.Take(true);
  };
  plan.programs.push_back(nested(16));
  AddEntry(plan, EntryKind::kPredict, 1, {0});
  EXPECT_EQ(Text(Verify(plan, FindTestKernel)), "");
  plan.programs.Mutable(0) = nested(17);
  ExpectFault(plan, "names", {"nested more than 16 deep"});
}

TEST(VerifyPlan, RejectsWrongShards) {
  Plan plan = Sample("replicas");
  plan.entries[0].ranks[1].shard_length += 1;
  ExpectFault(plan, "ranks", {"do not divide the batch"});
  plan = Sample("replicas");
  plan.entries[0].ranks[3].shard_start = INT64_MAX;
  ExpectFault(plan, "ranks", {"not within the batch"});
  plan = Sample("replicas");
  plan.entries[0].feeds[0].shape = {4 * kN + 4};
  ExpectFault(plan, "bounds", {"'feed0'", "does not fit the shard of feed 'x'"});
}

// The runtime binds all samples of a rank to a copy, and gives a fetched feed back whole.
TEST(VerifyPlan, RejectsPartsOfFeedsAndFetchesWithOtherAxes) {
  Plan plan = EmptyPlan();
  ProgramBuilder b(plan);
  const int x = b.Feed(0, 2 * kN), to = b.Value("to", 1);
  b.Copy(b.Part("part", x, 0, 1), to);
  plan.programs.push_back(b.Take());
  AddEntry(plan, EntryKind::kPredict, 2, {0, 0}).feeds.push_back({"x", DType::kFloat32, {4 * kN}, 0});
  plan.entries[0].fetches.push_back({"x", x, 0});
  ExpectFault(plan, "bounds", {"'part'", "does not fit the shard of feed 'x'"});
  plan.entries[0].fetches[0].batch_axis = -1;
  ExpectFault(plan, "bounds", {"fetch 'x'", "divided among the ranks in another way than its feed"});
  std::ranges::reverse(plan.programs.Mutable(0).instructions[0].uses);
  ExpectFault(plan, "names", {"#0 copy", "its uses must be a read, then a write"});
  plan.groups[0].ranks = {1, 0};
  ExpectFault(plan, "ranks", {"group 0", "not in ascending order"});
}

// A fetched feed is given back for all ranks as it was passed.
TEST(VerifyPlan, RejectsAFetchOfDifferentFeeds) {
  Plan plan = EmptyPlan();
  ProgramBuilder b(plan);
  const int x = b.Feed(0, 2 * kN), z = b.Feed(1, 2 * kN), y = b.Value("y", 2 * kN);
  b.Launch("Map", {x, z}, {y});
  plan.programs.push_back(b.Take());
  Entry& entry = AddEntry(plan, EntryKind::kPredict, 2, {0, 0});
  for (const char* name : {"x", "z"}) entry.feeds.push_back({name, DType::kFloat32, {4 * kN}, 0});
  entry.fetches = {{"x", x, 0}, {"y", y, 0}};
  EXPECT_EQ(Text(Verify(plan, FindTestKernel)), "");
  for (const int other : {z, y}) {
    plan.entries[0].ranks[1].fetches = {other, y};
    ExpectFault(plan, "bounds", {"fetch 'x'", "of rank 1 does not match the fetches of the ranks before it"});
  }
}

// Many faults give a short list, and a large plan takes milliseconds.
TEST(VerifyPlan, IsQuickOnLargePlans) {
  Plan plan = EmptyPlan();
  ProgramBuilder b(plan, 4);
  std::vector<int> last(4, b.Feed(0, kN));
  constexpr int kInstructions = 10'000;
  for (int i = 0; i < kInstructions / 2; ++i) {
    const size_t stream = static_cast<size_t>(i % 4), other = (stream + 1) % 4;
    const int next = b.Value("v", kN, i % 997 * 64 * 8 + static_cast<int64_t>(stream) * 64);
    if (b.program().num_events < kInstructions / 3) b.Order(static_cast<int>(other), static_cast<int>(stream));
    b.Launch("Map", {last[stream]}, {next}, static_cast<int>(stream));
    last[stream] = next;
  }
  plan.programs.push_back(b.Take());
  AddEntry(plan, EntryKind::kPredict, kN, {0}).feeds.push_back({"x", DType::kFloat32, {kN}, 0});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(Text(Verify(plan, FindTestKernel)), "");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%zu instructions verified in %.1f ms\n", plan.programs[0].instructions.size(), seconds * 1e3);
  EXPECT_LT(seconds, 5);

  for (Instruction& instruction : plan.programs.Mutable(0).instructions) instruction.kernel = "no such kernel";
  EXPECT_EQ(Verify(plan, FindTestKernel).size(), 100U);
}

}  // namespace
}  // namespace gradloom
