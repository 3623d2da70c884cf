#include "runtime/plan/text.h"

#include "gtest/gtest.h"
#include "tests/verify/plan_builder.h"

namespace gradloom {
namespace {

TEST(PlanText, ShowsAProgram) {
  Plan plan = EmptyPlan();
  ProgramBuilder b(plan, 2);
  const int x = b.Feed(0, 4), y = b.Value("y", 4), z = b.Value("z\n", 4), scratch = b.Scratch(32), half = b.Part("half of y", y, 0, 2);
  b.Launch("Map", {x, -1}, {y});
  b.program().instructions[0].attributes = {{"alpha", 0.5}, {"axes", std::vector<int64_t>{0, 1}}};
  b.Order(0, 1);
  b.Launch("Work", {half}, {z}, 1, scratch);
  b.Collective(Collective::kAllReduceSum, z, z, 1, 1);
  b.Reduce({y, half}, {y, -1}, {0, 2});
  b.program().streams[1] = {StreamKind::kComm, 0, 2};
  b.program().buffers[2].layout = Layout::FromString("0:0x4");
  EXPECT_EQ(ProgramText(b.program()),
            "  6 instructions, 1 events, 192 transient bytes\n"
            "  s0 compute on target 0, threads 1\n"
            "  s1 comm on target 0, threads 2\n"
            "  %0 feed0: float32[4] feed 0\n"
            "  %1 y: float32[4] transient 0 to 16\n"
            "  %2 z\\x0a: float32[4] as 0:0x4 transient 64 to 80\n"
            "  %3 scratch: scratch transient 128 to 160\n"
            "  %4 half of y: float32[2] transient 0 to 8 of %1\n"
            "  #0 s0 test.Map(feed0%0, absent) -> y%1 {alpha=0.5, axes=[0,1]} ; /Map0\n"
            "  #1 s0 record e0\n"
            "  #2 s1 wait e0\n"
            "  #3 s1 test.Work(half of y%4) -> z\\x0a%2 scratch %3 ; /Work3\n"
            "  #4 s1 all_reduce_sum g1(z\\x0a%2) -> z\\x0a%2\n"
            "  #5 s0 reduce_sum g0 roots 0 2(y%1, half of y%4) -> y%1, absent\n");
}

// Plans that are rejected must be printable too.
TEST(PlanText, ShowsInvalidOffsets) {
  Plan plan = EmptyPlan();
  AddState(plan, "w", 8);
  plan.state.back().bytes = INT64_MAX;
  plan.state.back().offset = 64;
  EXPECT_NE(PlanText(plan).find("w: parameter float32[8], bytes 64 to 64 + 9223372036854775807, "), std::string::npos) << PlanText(plan);
}

// Numbers from a hostile file, which UndefinedBehaviorSanitizer would report as an overflow.
TEST(PlanText, ToleratesAnySampleCounts) {
  Plan plan = EmptyPlan();
  ProgramBuilder b(plan);
  plan.programs.push_back(b.Take());
  Entry& entry = AddEntry(plan, EntryKind::kEval, 7, {0, 0});
  for (RankBinding& rank : entry.ranks) rank.shard_start = INT64_MAX;
  EXPECT_NE(PlanText(plan).find("rank 0: program 0, 3 samples from 9223372036854775807, groups 0\n  rank 1: "), std::string::npos)
      << PlanText(plan);
}

TEST(PlanText, ShowsTheTables) {
  Plan plan = EmptyPlan();
  const int w = AddState(plan, "w", 8);
  AddState(plan, "w/m", 8, StateKind::kOptimizer, w);
  AddConstant(plan, "c", 4);
  plan.model = {"net", "beef", "1234", {{"w.1", "w"}}};
  plan.properties = {{"options", "--lr 1"}};
  plan.losses = {{"cross_entropy", "logits", "label", true, -1, 7, {0.5, 2}, true}, {"mse", "y", "t"}};
  plan.loss_terms = {"loss/logits", "loss/y"};
  ProgramBuilder b(plan);
  plan.programs.push_back(b.Take());
  Entry& entry = AddEntry(plan, EntryKind::kEval, 7, {0, 0, 0});
  entry.ranks[2].shard_length = 3;
  entry.feeds.push_back({"x", DType::kFloat32, {7, 2}, 0});
  entry.fetches.push_back({"y", 1, -1});
  EXPECT_EQ(
      PlanText(plan),
      "plan, format 9\n"
      "model: net, hash beef, 4 bytes without weights\n"
      "tied: 'w.1' is 'w', transposed\n"
      "target: cpu any, threads 1\n"
      "property options: --lr 1\n"
      "loss: cross_entropy of logits and label, classes along axis -1, class 7 ignored, class weights [0.5,2.0], mean over positions\n"
      "loss: mse of y and t\n"
      "loss term: fetch loss/logits\n"
      "loss term: fetch loss/y\n"
      "schedule: constant, lr 0.0\n"
      "accumulate: 1\n"
      "step: 64 bytes, lr 0, step -1, batch -1, seed -1\n"
      "state: 128 bytes\n"
      "  w: parameter float32[8], bytes 0 to 32, zero at first\n"
      "  w/m: optimizer of 0 float32[8], bytes 64 to 96, zero at first\n"
      "constants: 64 bytes\n"
      "  c: float32[4], from byte 0\n"
      "group 0: 0 1 2\n"
      "entry 0: eval, batch 7\n"
      "  feed x: float32[7,2], batch along 0\n"
      "  fetch y: %1\n"
      "  ranks 0 to 1: program 0, 2 samples each from 0, groups 0\n"
      "  rank 2: program 0, 3 samples from 4, groups 0\n"
      "program 0:\n"
      "  0 instructions, 0 events, 0 transient bytes\n"
      "  s0 compute on target 0, threads 1\n");
}

}  // namespace
}  // namespace gradloom
