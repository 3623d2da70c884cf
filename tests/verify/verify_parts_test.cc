// Sums over a part of the ranks, transfers, and ranges of values.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/plan/verify_plan.h"
#include "tests/verify/faults.h"
#include "tests/verify/plan_builder.h"

namespace gradloom {
namespace {

constexpr int64_t kN = 16;

// A sum over some of the ranks that hold a weight is a part of its gradient, which differs from the others' part.
TEST(VerifyParts, RejectsSumsOverSomeOfTheRanks) {
  Plan plan = Sample("replicas");
  plan.groups[0].ranks = {0, 1};
  plan.groups.push_back({{2, 3}});
  for (size_t r : {2, 3}) plan.entries[0].ranks[r].groups[0] = 2;
  ExpectFault(plan, "ranks", {"sums over group 0, which lacks ranks that hold the same part of the model"});
  ExpectFault(plan, "ranks", {"sums over group 2, which lacks ranks that hold the same part of the model"});
  plan = Sample("parts");
  plan.groups = {{{0}}, {{1}}};
  for (Entry& entry : plan.entries) entry.ranks[1].groups = {1};
  ExpectFault(plan, "ranks", {"sums over group 1, which lacks ranks that hold the same part of the model"});
}

// Both ends have 64 bytes of float32, but not in the same order.
TEST(VerifyParts, RejectsTransfersBetweenLayouts) {
  for (const bool same : {true, false}) {
    Plan plan = EmptyPlan();
    ProgramBuilder from(plan), to(plan);
    const int sent = from.Value("sent", kN), received = to.Value("received", kN), y = to.Value("y", kN);
    from.Launch("Fill", {}, {sent});
    from.Send(sent, 1);
    to.Recv(received, 0);
    to.Launch("Map", {received}, {y});
    if (!same) from.program().buffers[static_cast<size_t>(sent)].layout.blocks = {{0, static_cast<int>(kN)}};
    plan.programs.push_back(from.Take());
    plan.programs.push_back(to.Take());
    Entry& entry = AddEntry(plan, EntryKind::kPredict, kN, {0, 1});
    for (RankBinding& rank : entry.ranks) {
      rank.peers = {0, 1};
      rank.shard_start = 0;
      rank.shard_length = kN;
    }
    if (same) {
      EXPECT_EQ(Text(Verify(plan, FindTestKernel)), "");
    } else {
      ExpectFault(plan, "ranks", {"is matched with", "another tag, type, layout or size"});
    }
  }
}

// A range of a weight that does not begin with it.
TEST(VerifyParts, ReadsOfPartsOfStates) {
  Plan plan = EmptyPlan();
  const int w = AddState(plan, "w", 2 * kN);
  ProgramBuilder b(plan);
  const int half = b.Part("half", b.State(w), kN, kN), y = b.Value("y", kN);
  b.Launch("Map", {half}, {y});
  plan.programs.push_back(b.Take());
  AddEntry(plan, EntryKind::kPredict, kN, {0}).fetches.push_back({"y", y, -1});
  EXPECT_EQ(Text(Verify(plan, FindTestKernel)), "");
}

// Both are 64 bytes of float32 in the same layout, but of other rows.
TEST(VerifyParts, RejectsCopiesBetweenShapesThatAreNotPlain) {
  const Layout columns_first = Layout::FromString("10");
  for (const bool collective : {false, true}) {
    for (const Shape& shape : {Shape{4, 4}, Shape{2, 8}}) {
      Plan plan = EmptyPlan();
      ProgramBuilder b(plan);
      const int from = b.Value("from", kN), to = b.Value("to", kN);
      b.Launch("Fill", {}, {from});
      collective ? b.Collective(Collective::kAllReduceSum, from, to) : b.Copy(from, to);
      std::vector<Buffer>& buffers = b.program().buffers;
      buffers[0].shape = {4, 4};
      buffers[1].shape = shape;
      for (Buffer& buffer : buffers) buffer.layout = columns_first;
      plan.programs.push_back(b.Take());
      AddEntry(plan, EntryKind::kPredict, 1, {0});
      const std::string faults = Text(Verify(plan, FindTestKernel));
      EXPECT_EQ(faults.find("of another type, size or layout") != std::string::npos, shape[0] == 2) << faults;
      plan.programs.Mutable(0).buffers[1].layout = {};
      ExpectFault(plan, "bounds", {"of another type, size or layout"});
    }
  }
}

// The program for ranks without samples would leave out those of a rank that has some.
TEST(VerifyParts, RejectsRanksThatLeaveOutTheirSamples) {
  Plan plan = Sample("uneven replicas");
  plan.entries[0].ranks[2].program = 2;
  ExpectFault(plan, "ranks", {"feed 'x'", "the ranks that read it have 64 samples of 80"});
}

// One rank's part of a sum is no result.
TEST(VerifyParts, RejectsFetchesOfPartialStates) {
  Plan plan = Sample("parts");
  const Instruction& clears = plan.programs[1].instructions.back();
  plan.entries[1].fetches.push_back({"part", clears.uses[1].buffer, -1});
  plan.entries[1].ranks[1].fetches = {-1};
  ExpectFault(plan, "ranks", {"entry 1, rank 0, a fetch", "reads state 'w/grad_sum', of which each rank holds only a part"});
}

// Of two values at one place, the first iteration overwrites the one that every iteration is to read.
TEST(VerifyParts, LoopsOverwriteOnlyWhatTheyCarry) {
  Plan plan = Sample("control");
  Program& program = plan.programs.Mutable(0);
  Instruction& loop = program.instructions[5];
  const int carried = loop.uses[3].buffer;
  Buffer view = program.buffers[static_cast<size_t>(carried)];
  view.name = "view";
  Program& body = loop.bodies[0];
  body.buffers.push_back(view);
  body.instructions[0].uses[1].buffer = static_cast<int>(body.buffers.size()) - 1;
  view.whole = carried;
  program.buffers.push_back(view);
  loop.uses.insert(loop.uses.begin() + 4, {static_cast<int>(program.buffers.size()) - 1, Access::kRead});
  ExpectFault(plan, "values", {"#5 loop", "'carried''", "is written over both 'carried'", "and 'view'"});
}

// A body may have another value where its result will be.
TEST(VerifyParts, ResultsOfBodiesReuseMemory) {
  for (const bool overwritten : {false, true}) {
    Plan plan = EmptyPlan();
    ProgramBuilder b(plan), then_body(plan), else_body(plan);
    const int x = b.Feed(0, kN), condition = b.Value("condition", 1, -1, DType::kBool), a = b.Value("a", kN), y = b.Value("y", kN);
    const auto at = [&](int buffer) { return b.program().buffers[static_cast<size_t>(buffer)].offset; };
    for (ProgramBuilder* body : {&then_body, &else_body}) {
      const int in = body->Value("a", kN, at(a)), early = body->Value("early", kN, at(y)), out = body->Value("y", kN, at(y));
      body->Launch("Map", {in}, {early});
      body->Launch("Map", {early}, {out});
      if (overwritten) body->Launch("Test", {in}, {body->Value("late", 1, at(y), DType::kBool)});
    }
    b.Launch("Map", {x}, {a});
    b.Launch("Test", {a}, {condition});
    b.If({condition, a}, {y}, then_body.Take(true), else_body.Take(true));
    plan.programs.push_back(b.Take());
    Entry& entry = AddEntry(plan, EntryKind::kPredict, kN, {0});
    entry.feeds.push_back({"x", DType::kFloat32, {kN}, 0});
    entry.fetches.push_back({"y", y, 0});
    if (overwritten) {
      ExpectFault(plan, "values", {"body 0, at its end", "reads 'y'"});
    } else {
      EXPECT_EQ(Text(Verify(plan, FindTestKernel)), "");
    }
  }
}

// An entry that is added runs a program of which only an older entry fetches a buffer.
TEST(VerifyParts, FetchesOfOtherEntriesAreInUse) {
  Plan proved = EmptyPlan();
  ProgramBuilder b(proved);
  const int given = b.Feed(0, kN), filled = b.Value("filled", kN);
  b.Launch("Fill", {}, {filled});
  proved.programs.push_back(b.Take());
  AddEntry(proved, EntryKind::kPredict, kN, {0}).feeds.push_back({"x", DType::kFloat32, {kN}, 0});
  proved.entries[0].fetches = {{"x", given, 0}, {"filled", filled, -1}};
  Plan plan = proved;
  AddEntry(plan, EntryKind::kEval, kN, {0}).feeds = proved.entries[0].feeds;
  plan.entries[1].fetches = {{"filled", filled, -1}};
  EXPECT_EQ(Text(Verify(plan, FindTestKernel)), "");
  EXPECT_EQ(Text(Verify(plan, FindTestKernel, &proved)), "");
}

// Ids and sizes that do not fit are faults, whatever else is computed from them.
TEST(VerifyParts, SurvivesFeedsThatDoNotExist) {
  Plan plan = Sample("replicas");
  plan.programs.Mutable(0).buffers[0].feed = 1000000;
  ExpectFault(plan, "names", {"feed 1000000 is out of range"});
  plan = Sample("replicas");
  plan.entries[0].feeds[0].shape = {2, int64_t{1} << 40, int64_t{1} << 40};
  ExpectFault(plan, "bounds", {"feed 'x'", "has an invalid type or shape"});
  plan = Sample("replicas");
  plan.entries[0].batch = 0;
  ExpectFault(plan, "ranks", {"is not within the batch of 0"});
}

// Ranges without bytes lie between those that overlap, and hide neither of them.
TEST(VerifyParts, RangesWithoutBytes) {
  Plan plan = EmptyPlan();
  {
    ProgramBuilder b(plan);
    const int whole = b.Value("whole", 2 * kN), none = b.Part("none", whole, kN, 0), half = b.Part("half", whole, kN, kN);
    for (const int buffer : {whole, none, half}) b.Launch("Fill", {}, {buffer});
    plan.programs.push_back(b.Take());
  }
  AddEntry(plan, EntryKind::kPredict, kN, {0});
  ExpectFault(plan, "writes", {"writes 'half'", "has already written"});
  plan = EmptyPlan();
  {
    ProgramBuilder b(plan);
    const int whole = b.Value("whole", 3 * kN), most = b.Part("most", whole, 0, 2 * kN), none = b.Part("none", whole, kN, 0),
              middle = b.Part("middle", whole, kN, kN);
    b.Launch("Fill", {}, {whole});
    for (const int buffer : {most, none, middle}) {
      const int64_t elements = b.program().buffers[static_cast<size_t>(buffer)].shape[0];
      b.Launch("Map", {buffer}, {b.Value("read", elements)});
    }
    plan.programs.push_back(b.Take());
  }
  AddEntry(plan, EntryKind::kPredict, kN, {0});
  ExpectFault(plan, "bounds", {"'middle'", "another part of the same whole"});
}

}  // namespace
}  // namespace gradloom
