// Whether ranks that hold the same state give it the same next value, and sums count every sample once.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/catalog/pointwise.h"
#include "runtime/plan/verify_plan.h"
#include "tests/verify/faults.h"
#include "tests/verify/plan_builder.h"

namespace gradloom {
namespace {

constexpr int64_t kN = 16;

std::string Faults(const Plan& plan) { return Text(Verify(plan, FindTestKernel)); }

constexpr std::string_view kDiffers = "a value that is not the same on all ranks that hold it";

// Each rank of the entry has `kN` samples of the feed, and all are in one group.
void AddStep(Plan& plan, std::vector<int> programs) {
  const auto ranks = static_cast<int64_t>(programs.size());
  AddEntry(plan, EntryKind::kStep, ranks * kN, std::move(programs)).feeds.push_back({"x", DType::kFloat32, {ranks * kN}, 0});
}

// The device that gathers has a place of its own, so each part of the group has all ranks of some place.
TEST(VerifySharing, SumsHaveEverySampleOnce) {
  Plan plan = Sample("gathered");
  plan.groups = {{{0}}, {{1, 2}}};
  for (size_t r : {1, 2}) plan.entries[0].ranks[r].groups[0] = 1;
  ExpectFault(plan, "ranks", {"sums over group 0, which lacks the samples from 16"});
  ExpectFault(plan, "ranks", {"sums over group 1, which lacks the samples from 0"});
  ExpectFault(plan, "ranks", {kDiffers});
}

TEST(VerifySharing, StagesOfOneReplicaHaveTheSameSamples) {
  Plan plan = EmptyPlan();
  plan.places = {{}, {}};
  for (int place : {0, 1}) {
    ProgramBuilder b(plan);
    const int x = b.Feed(0, kN), y = b.Value("y", kN), sum = b.Value("sum", kN);
    b.Launch("Map", {x}, {y});
    b.Collective(Collective::kAllReduceSum, y, sum);
    plan.programs.push_back(b.Take());
    plan.programs.Mutable(plan.programs.size() - 1).place = place;
  }
  Entry& entry = AddEntry(plan, EntryKind::kEval, 2 * kN, {0, 1, 0, 1});
  entry.feeds.push_back({"x", DType::kFloat32, {2 * kN}, 0});
  for (size_t r = 0; r < 4; ++r) {
    entry.ranks[r].shard_start = r < 2 ? 0 : kN;
    entry.ranks[r].shard_length = kN;
  }
  ExpectFault(plan, "ranks", {"sums over group 0, which counts the samples from 0 several times"});
  plan.groups = {{{0, 2}}, {{1, 3}}};
  for (size_t r : {1, 3}) plan.entries[0].ranks[r].groups[0] = 1;
  EXPECT_EQ(Faults(plan), "");
}

TEST(VerifySharing, RejectsStatesThatDependOnTheRanksSamples) {
  Plan plan = Sample("gathered");
  for (size_t p : {0, 1}) {
    for (Instruction& instruction : plan.programs.Mutable(p).instructions) {
      if (instruction.kind != InstructionKind::kCollective) continue;
      instruction.kind = InstructionKind::kCopy;
      instruction.group = -1;
    }
  }
  ExpectFault(plan, "ranks", {"gives state 'w' a value that is not the same on all ranks that hold it: it depends on 'step'"});
}

// The same values as above on one rank, on ranks with the same samples, and in a state of which each rank has a part, are in order.
TEST(VerifySharing, SamplesOfOneRankAndPartsMayDiffer) {
  for (const bool one : {true, false}) {
    Plan plan = EmptyPlan();
    const int w = AddState(plan, "w", kN);
    ProgramBuilder b(plan);
    const int x = b.Feed(0, kN), s = b.State(w), next = b.State(w, "'");
    b.Launch("Update", {s, x}, {next});
    plan.programs.push_back(b.Take());
    Entry& entry = AddEntry(plan, EntryKind::kStep, kN, one ? std::vector<int>{0} : std::vector<int>{0, 0});
    entry.feeds.push_back({"x", DType::kFloat32, {kN}, 0});
    for (RankBinding& rank : entry.ranks) rank.shard_start = 0, rank.shard_length = kN;
    EXPECT_EQ(Faults(plan), "") << one;
  }
  EXPECT_EQ(Faults(Sample("parts")), "");
}

// Rank 0 must send what it computes from all samples to every rank whose states depend on it.
TEST(VerifySharing, GatheredResultsReachAllRanks) {
  Plan plan = Sample("gathered");
  EXPECT_EQ(Faults(plan), "");
  Program& program = plan.programs.Mutable(0);
  std::vector<Instruction*> sends;
  for (Instruction& instruction : program.instructions) {
    if (instruction.kind == InstructionKind::kSend) sends.push_back(&instruction);
  }
  ASSERT_EQ(sends.size(), 4U);
  sends[3]->uses = sends[1]->uses;
  ExpectFault(plan, "ranks", {"gives state 'w' a value that is not the same on all ranks that hold it: it depends on 'step'"});
}

// Two replicas of two stages. The second stage reads the first one's weight too and returns its part of the gradient. Both scale their
// updates by the norms of all gradients, and hold a counter that depends on them.
Plan Placed(bool norm_of_sum) {
  Plan plan = EmptyPlan();
  const int w[] = {AddState(plan, "w0", kN), AddState(plan, "w1", kN)}, count = AddState(plan, "count", kN);
  plan.places = {{kN * 12, 0}, {kN * 12, 0}};
  for (int stage : {0, 1}) plan.state[static_cast<size_t>(w[stage])].places = {stage};
  for (int stage : {0, 1}) {
    ProgramBuilder b(plan);
    const int own = b.State(w[stage]), counter = b.State(count), h = b.Value("h", kN), dh = b.Value("dh", kN), part = b.Value("part", kN),
              g = b.Value("g", kN), total = b.Value("total", kN), sum = b.Value("sum", kN), norm = b.Value("norm", kN),
              norm_there = b.Value("norm there", kN), factor = b.Value("factor", kN), step = b.Value("step", kN),
              next = b.State(w[stage], "'"), counter_next = b.State(count, "'");
    const int there = 1 - stage;
    if (stage == 0) {
      const int x = b.Feed(0, kN);
      b.Launch("Mix", {x, own}, {h});
      b.Send(own, there);
      b.Send(h, there);
      b.Recv(dh, there);
      b.Recv(part, there);
      b.Launch("Mix", {dh, x}, {g});
    } else {
      const int first = b.Value("w0", kN), y = b.Value("y", kN);
      b.Recv(first, there);
      b.Recv(h, there);
      b.Launch("Map", {h, own, first}, {y});
      b.Launch("Mix", {y, own}, {dh});
      b.Launch("Mix", {y, h}, {part});
      b.Send(dh, there);
      b.Send(part, there);
      b.Launch("Mix", {y, first}, {g});
    }
    b.Launch("Mix", {g, part}, {total});
    b.Collective(Collective::kAllReduceSum, total, sum);
    b.Launch("Map", {norm_of_sum ? sum : total}, {norm});
    if (stage == 0) {
      b.Send(norm, there);
      b.Recv(norm_there, there);
    } else {
      b.Recv(norm_there, there);
      b.Send(norm, there);
    }
    b.Launch("Mix", {stage == 0 ? norm : norm_there, stage == 0 ? norm_there : norm}, {factor});
    b.Launch("Mix", {sum, factor}, {step});
    b.Launch("Update", {own, step}, {next});
    b.Launch("Update", {counter, factor}, {counter_next});
    plan.programs.push_back(b.Take());
    plan.programs.Mutable(plan.programs.size() - 1).place = stage;
  }
  Entry& entry = AddEntry(plan, EntryKind::kStep, 2 * kN, {0, 1, 0, 1});
  entry.feeds.push_back({"x", DType::kFloat32, {2 * kN}, 0});
  plan.groups = {{{0, 2}}, {{1, 3}}};
  for (size_t r = 0; r < 4; ++r) {
    const auto first = static_cast<int>(r / 2 * 2);
    entry.ranks[r].groups = {static_cast<int>(r % 2)};
    entry.ranks[r].peers = {first, first + 1};
    entry.ranks[r].shard_start = first / 2 * kN;
    entry.ranks[r].shard_length = kN;
  }
  return plan;
}

TEST(VerifySharing, FollowsTransfersBetweenStages) {
  EXPECT_EQ(Faults(Placed(true)), "");
  const std::string faults = Faults(Placed(false));
  for (const char* state : {"w0", "w1"}) {
    EXPECT_NE(faults.find("gives state '" + std::string(state) + "' " + std::string(kDiffers)), std::string::npos) << faults;
  }
}

// What the first rank of a stage sends back is not what the second has.
TEST(VerifySharing, StatesOfSeveralStagesNeedTheValueEverywhere) {
  Plan plan = Placed(true);
  Program& program = plan.programs.Mutable(1);
  const auto update = std::find_if(program.instructions.rbegin(), program.instructions.rend(),
                                   [](const Instruction& instruction) { return instruction.op == "Update"; });
  const auto sum = std::find_if(program.buffers.begin(), program.buffers.end(), [](const Buffer& buffer) { return buffer.name == "sum"; });
  update->uses[1].buffer = static_cast<int>(sum - program.buffers.begin());
  ExpectFault(plan, "ranks", {"gives state 'count' a value that is not the same on all ranks that hold it: entry 0, rank"});
}

// Nothing writes a part of a value that another stage gets.
TEST(VerifySharing, PartsOfSharedValuesAreSent) {
  Plan plan = EmptyPlan();
  const int w = AddState(plan, "w", kN), count = AddState(plan, "count", kN / 2);
  plan.places = {{kN * 8, 0}, {kN * 8, 0}};
  plan.state[static_cast<size_t>(w)].places = {0};
  for (int stage : {0, 1}) {
    ProgramBuilder b(plan);
    const int counter = b.State(count), next = b.State(count, "'");
    int half = -1;
    if (stage == 0) {
      const int s = b.State(w), norm = b.Value("norm", kN);
      half = b.Part("half", norm, 0, kN / 2);
      b.Launch("Map", {s}, {norm});
      b.Send(half, 1);
    } else {
      half = b.Value("half", kN / 2);
      b.Recv(half, 0);
    }
    b.Launch("Update", {counter, half}, {next});
    plan.programs.push_back(b.Take());
    plan.programs.Mutable(plan.programs.size() - 1).place = stage;
  }
  Entry& entry = AddEntry(plan, EntryKind::kStep, 2 * kN, {0, 1, 0, 1});
  for (size_t r = 0; r < 4; ++r) {
    const auto first = static_cast<int>(r / 2 * 2);
    entry.ranks[r].peers = {first, first + 1};
    entry.ranks[r].shard_start = first / 2 * kN;
    entry.ranks[r].shard_length = kN;
  }
  EXPECT_EQ(Faults(plan), "");
}

// A branch or a loop computes values from samples and others from states. Only the latter may become states.
Plan WithBodies(bool loop, bool decided_by_samples, bool returns_samples) {
  Plan plan = EmptyPlan();
  const int w = AddState(plan, "w", kN);
  ProgramBuilder b(plan);
  const int x = b.Feed(0, kN), s = b.State(w), a = b.Value("a", kN), c = b.Value("c", kN), go = b.Value("go", 1, -1, DType::kBool);
  const auto at = [&](int buffer) { return b.program().buffers[static_cast<size_t>(buffer)].offset; };
  // A loop carries them in place, and passes each on to the next one.
  const int a_end = b.Value("a'", kN, at(a)), c_end = b.Value("c'", kN, at(c)), go_end = b.Value("go'", 1, at(go), DType::kBool);
  const int next = b.State(w, "'");
  const auto body = [&] {
    ProgramBuilder made(plan);
    const int a_in = made.Value("a", kN, at(a)), c_in = made.Value("c", kN, at(c)), out_a = made.Value("a'", kN, at(a)),
              out_c = made.Value("c'", kN, at(c));
    made.Launch("Map", {a_in}, {out_a});
    made.Launch("Map", {c_in}, {out_c});
    if (loop) made.Launch("Test", {decided_by_samples ? out_a : out_c}, {made.Value("go'", 1, at(go), DType::kBool)});
    return made.Take(true);
  };
  b.Launch("Map", {x}, {a});
  b.Launch("Map", {s}, {c});
  b.Launch("Test", {!loop && decided_by_samples ? a : c}, {go});
  if (loop) {
    b.Loop({-1, go, a, c}, {a_end, c_end, go_end}, body(), 7);
  } else {
    b.If({go, a, c}, {a_end, c_end}, body(), body());
    b.Launch("Test", {c_end}, {go_end});
  }
  b.Launch("Update", {s, returns_samples ? a_end : c_end}, {next});
  plan.programs.push_back(b.Take());
  AddStep(plan, {0, 0});
  return plan;
}

TEST(VerifySharing, FollowsBodies) {
  for (const bool loop : {false, true}) {
    EXPECT_EQ(Faults(WithBodies(loop, false, false)), "") << loop;
    ExpectFault(WithBodies(loop, false, true), "ranks", {kDiffers});
    ExpectFault(WithBodies(loop, true, false), "ranks", {kDiffers});
  }
}

// A loop passes a value on from one carried value to the next, so it arrives only after as many iterations.
TEST(VerifySharing, LoopsPassValuesOn) {
  constexpr size_t kCarried = 9;
  for (const bool samples : {false, true}) {
    Plan plan = EmptyPlan();
    const int w = AddState(plan, "w", kN);
    ProgramBuilder b(plan), body(plan);
    const int x = b.Feed(0, kN), s = b.State(w), of_x = b.Value("of x", kN);
    std::vector<int> before, after, in, out;
    for (size_t k = 0; k < kCarried; ++k) {
      const std::string name = "v" + std::to_string(k);
      before.push_back(b.Value(name, kN));
      const int64_t at = b.program().buffers[static_cast<size_t>(before.back())].offset;
      after.push_back(b.Value(name + "'", kN, at));
      in.push_back(body.Value(name, kN, at));
      out.push_back(body.Value(name + "'", kN, at));
    }
    // The last one first, so that none is overwritten before it is read.
    for (size_t k = kCarried - 1; k > 0; --k) body.Launch("Map", {in[k], in[k - 1]}, {out[k]});
    body.Launch("Map", {in[0]}, {out[0]});
    b.Launch("Map", {x}, {of_x});
    for (size_t k = 0; k < kCarried; ++k) b.Launch("Map", {k == 0 && samples ? of_x : s}, {before[k]});
    const int next = b.State(w, "'");
    Instruction loop;
    loop.kind = InstructionKind::kLoop;
    loop.bodies.push_back(body.Take(true));
    loop.trip_bound = 20;
    loop.uses = {{-1, Access::kRead}, {-1, Access::kRead}};
    for (int id : before) loop.uses.push_back({id, Access::kRead});
    for (int id : after) loop.uses.push_back({id, Access::kWrite});
    b.program().instructions.push_back(std::move(loop));
    b.Launch("Update", {s, after.back()}, {next});
    plan.programs.push_back(b.Take());
    AddStep(plan, {0, 0});
    const std::string faults = Faults(plan);
    EXPECT_EQ(faults.find(kDiffers) != std::string::npos, samples) << faults;
  }
}

// A launch may compute several results that do not depend on each other.
TEST(VerifySharing, FollowsResultsOfOneLaunch) {
  for (const int result : {0, 1}) {
    Plan plan = EmptyPlan();
    const int w = AddState(plan, "w", kN);
    ProgramBuilder b(plan);
    const int x = b.Feed(0, kN), s = b.State(w), of_x = b.Value("of x", kN), of_s = b.Value("of s", kN), next = b.State(w, "'");
    PointwiseProgram fused{.num_inputs = 2};
    fused.outputs = {fused.Emit(PointwiseOp::kNeg, 0), fused.Emit(PointwiseOp::kNeg, 1)};
    Instruction& launch = b.program().instructions[static_cast<size_t>(b.Launch("Fused", {x, s}, {of_x, of_s}))];
    launch.domain = "gradloom";
    launch.attributes = fused.ToAttributes();
    b.Launch("Update", {s, result == 0 ? of_x : of_s}, {next});
    plan.programs.push_back(b.Take());
    AddStep(plan, {0, 0});
    if (result == 0) {
      ExpectFault(plan, "ranks", {kDiffers});
    } else {
      EXPECT_EQ(Faults(plan), "");
    }
  }
}

// Of a launch that its kernel does not check before it runs, each result may depend on every operand.
TEST(VerifySharing, SurvivesLaunchesThatAreNoProgram) {
  for (const bool absent : {false, true}) {
    Plan plan = EmptyPlan();
    const int w = AddState(plan, "w", kN);
    ProgramBuilder b(plan);
    const int x = b.Feed(0, kN), s = b.State(w), of_x = absent ? -1 : b.Value("of x", kN), of_s = b.Value("of s", kN),
              next = b.State(w, "'");
    PointwiseProgram fused{.num_inputs = 2};
    fused.outputs = {fused.Emit(PointwiseOp::kNeg, 0), fused.Emit(PointwiseOp::kNeg, 1)};
    Instruction& launch = b.program().instructions[static_cast<size_t>(b.Launch("Fused", {x, s}, {of_x, of_s}))];
    launch.domain = "gradloom";
    if (absent) launch.attributes = fused.ToAttributes();
    b.Launch("Update", {s, of_s}, {next});
    plan.programs.push_back(b.Take());
    AddStep(plan, {0, 0});
    ExpectFault(plan, "ranks", {kDiffers});
  }
}

// Gives one rank of the first entry its own copy of the program.
Program& OwnProgram(Plan& plan, size_t rank) {
  int& program = plan.entries[0].ranks[rank].program;
  plan.programs.push_back(plan.programs[static_cast<size_t>(program)]);
  program = static_cast<int>(plan.programs.size()) - 1;
  return plan.programs.Mutable(plan.programs.size() - 1);
}

// Each of these is the same on all ranks that run the program, but not on all that hold the weight.
TEST(VerifySharing, OneRankMustNotUpdateInAnotherWay) {
  Plan plan = EmptyPlan();
  const int w = AddState(plan, "w", kN), v = AddState(plan, "v", kN);
  ProgramBuilder b(plan);
  const int x = b.Feed(0, kN), s = b.State(w), t = b.State(v), both = b.Value("both", 2 * kN), sums = b.Value("sums", 2 * kN);
  const int g = b.Part("g", both, 0, kN), h = b.Part("h", both, kN, kN), g_sum = b.Part("g sum", sums, 0, kN),
            h_sum = b.Part("h sum", sums, kN, kN), v_next = b.State(v, "'"), w_next = b.State(w, "'");
  b.Launch("Mix", {x, s}, {g});
  b.Launch("Mix", {x, t}, {h});
  b.Collective(Collective::kAllReduceSum, both, sums);
  b.Launch("Update", {t, h_sum}, {v_next});
  b.Launch("Update", {s, g_sum}, {w_next});
  plan.programs.push_back(b.Take());
  AddStep(plan, {0, 0});
  EXPECT_EQ(Faults(plan), "");

  Plan mutant = plan;
  std::vector<Instruction>& updates = OwnProgram(mutant, 1).instructions;
  std::swap(updates.back().uses[1].buffer, updates[updates.size() - 2].uses[1].buffer);
  ExpectFault(mutant, "ranks", {"gives state 'w' a value that is not the same on all ranks that hold it: entry 0, rank"});
  mutant = plan;
  OwnProgram(mutant, 0).instructions.back().attributes.set("factor", 2.0);
  ExpectFault(mutant, "ranks", {"gives state 'w' a value"});
  // The parts of a bucket change places.
  mutant = plan;
  Program& own = OwnProgram(mutant, 1);
  for (const auto& [a, c] : {std::pair(g, h), std::pair(g_sum, h_sum)})
    std::swap(own.buffers[static_cast<size_t>(a)].offset, own.buffers[static_cast<size_t>(c)].offset);
  for (const char* state : {"w", "v"}) ExpectFault(mutant, "ranks", {"gives state '" + std::string(state) + "' a value"});
}

// Two places of two ranks hold a counter. One rank of the first place sends its next value to one of the second.
TEST(VerifySharing, SendersNeedNotSendAlike) {
  Plan plan = EmptyPlan();
  const int count = AddState(plan, "count", kN);
  plan.places = {{kN * 4, 0}, {kN * 4, 0}};
  enum class Role { kSends, kComputes, kReceives };
  const auto add = [&](Role role, int place, bool twice) {
    ProgramBuilder b(plan);
    const int counter = b.State(count), step = b.Value("step", kN), next = b.State(count, "'");
    if (role == Role::kReceives) {
      b.Recv(step);
    } else {
      const int once = b.Value("once", kN);
      b.Launch("Map", {counter}, {once});
      b.Launch(twice ? "Work" : "Map", {once}, {step}, 0, twice ? b.Scratch(2 * kN * 4) : -1);
    }
    if (role == Role::kSends) b.Send(step);
    b.Launch("Update", {counter, step}, {next});
    plan.programs.push_back(b.Take());
    plan.programs.Mutable(plan.programs.size() - 1).place = place;
  };
  for (const bool twice : {false, true}) {
    plan.programs = {};
    plan.entries.clear();
    add(Role::kSends, 0, false);
    add(Role::kComputes, 0, false);
    add(Role::kReceives, 1, false);
    add(Role::kComputes, 1, twice);
    AddStep(plan, {0, 1, 2, 3});
    plan.entries[0].ranks[0].peers = {2};
    plan.entries[0].ranks[2].peers = {0};
    if (twice) {
      ExpectFault(plan, "ranks", {"gives state 'count' a value"});
    } else {
      EXPECT_EQ(Faults(plan), "");
    }
  }
}

// A constant may be at another place of the arena in each place, and is there twice then.
TEST(VerifySharing, CopiesOfAConstantAreEqual) {
  constexpr int64_t kLarge = 2048;
  for (const bool equal : {true, false}) {
    Plan plan = EmptyPlan();
    const int w = AddState(plan, "w", kLarge);
    int mask[2];
    for (int place : {0, 1}) {
      mask[place] = AddConstant(plan, "mask" + std::to_string(place), kLarge);
      plan.constants.back().places = {place};
      plan.constants.back().value.as<float>()[kLarge - 1] = equal ? 1.0F : static_cast<float>(place);
    }
    plan.places.push_back(plan.places[0]);
    for (int place : {0, 1}) {
      ProgramBuilder b(plan);
      b.Launch("Update", {b.State(w), b.Constant(mask[place])}, {b.State(w, "'")});
      plan.programs.push_back(b.Take());
      plan.programs.Mutable(plan.programs.size() - 1).place = place;
    }
    AddStep(plan, {0, 1});
    if (equal) {
      EXPECT_EQ(Faults(plan), "");
    } else {
      ExpectFault(plan, "ranks", {kDiffers});
    }
  }
}

// Ranks with more and fewer samples may fuse what they have in common in other ways, and give it another shape.
TEST(VerifySharing, FusedAndSingleOperatorsAreAlike) {
  for (const PointwiseOp second : {PointwiseOp::kNeg, PointwiseOp::kAbs}) {
    Plan plan = EmptyPlan();
    const int w = AddState(plan, "w", kN);
    for (const bool fused : {true, false}) {
      ProgramBuilder b(plan);
      const int s = b.State(w), y = b.Value("y", kN), next = b.State(w, "'");
      const auto launch = [&](std::initializer_list<PointwiseOp> functions, int from, int to) {
        PointwiseProgram program{.num_inputs = 1};
        int result = 0;
        for (const PointwiseOp function : functions) result = program.Emit(function, result);
        program.outputs = {result};
        Instruction& instruction = b.program().instructions[static_cast<size_t>(b.Launch("Fused", {from}, {to}))];
        instruction.domain = "gradloom";
        instruction.attributes = program.ToAttributes();
      };
      if (fused) {
        launch({PointwiseOp::kRelu, PointwiseOp::kNeg}, s, y);
      } else {
        const int between = b.Value("between", kN), view = b.Part("view", between, 0, kN);
        b.program().buffers[static_cast<size_t>(view)].shape = {kN / 2, 2};
        launch({PointwiseOp::kRelu}, s, between);
        launch({second}, view, y);
      }
      b.Launch("Update", {s, y}, {next});
      plan.programs.push_back(b.Take());
    }
    AddStep(plan, {0, 1});
    if (second == PointwiseOp::kNeg) {
      EXPECT_EQ(Faults(plan), "");
    } else {
      ExpectFault(plan, "ranks", {kDiffers});
    }
  }
}

// A fused operator rounds what it passes on as memory would, but not what needs no rounding.
TEST(VerifySharing, FusedAndSingleOperatorsRoundAlike) {
  using enum PointwiseOp;
  for (const bool rounds : {true, false}) {
    Plan plan = EmptyPlan();
    const int w = AddState(plan, "w", kN);
    for (const bool fused : {true, false}) {
      ProgramBuilder b(plan);
      const int s = b.State(w), y = b.Value("y", kN), next = b.State(w, "'");
      const auto launch = [&](std::initializer_list<PointwiseOp> functions, int from, int to) {
        PointwiseProgram program{.num_inputs = 1};
        int result = 0;
        for (const PointwiseOp function : functions) result = program.Emit(function, result);
        program.outputs = {result};
        Instruction& instruction = b.program().instructions[static_cast<size_t>(b.Launch("Fused", {from}, {to}))];
        instruction.domain = "gradloom";
        instruction.attributes = program.ToAttributes();
      };
      if (fused) {
        rounds ? launch({kExp, kToBfloat16, kRelu, kSqrt}, s, y) : launch({kExp, kRelu, kSqrt}, s, y);
      } else {
        const int first = b.Value("first", kN, -1, DType::kBfloat16), second = b.Value("second", kN, -1, DType::kBfloat16);
        launch({kExp}, s, first);
        launch({kRelu}, first, second);
        launch({kSqrt}, second, y);
      }
      b.Launch("Update", {s, y}, {next});
      plan.programs.push_back(b.Take());
    }
    AddStep(plan, {0, 1});
    if (rounds) {
      EXPECT_EQ(Faults(plan), "");
    } else {
      ExpectFault(plan, "ranks", {kDiffers});
    }
  }
}

// Rank 0 gets a value from rank 3, rank 2 one from rank 0, and rank 1, which runs the program of rank 0, one from rank 2.
TEST(VerifySharing, ProgramsMayWaitForEachOther) {
  Plan plan = EmptyPlan();
  const auto add = [&](bool receives, bool sends) {
    ProgramBuilder b(plan);
    const int value = b.Value("value", kN);
    receives ? b.Recv(value, 0) : b.Launch("Fill", {}, {value});
    if (sends) b.Send(value, 1);
    plan.programs.push_back(b.Take());
  };
  add(true, true);
  add(true, true);
  add(false, true);
  add(true, false);
  AddEntry(plan, EntryKind::kEval, 5 * kN, {0, 0, 1, 2, 3});
  const std::vector<std::vector<int>> peers = {{3, 2}, {2, 4}, {0, 1}, {0, 0}, {1}};
  for (size_t r = 0; r < peers.size(); ++r) plan.entries[0].ranks[r].peers = peers[r];
  EXPECT_EQ(Faults(plan), "");
}

// A fetch without samples is taken from one rank, so it must be the same on all.
TEST(VerifySharing, FetchesAreTheSameOnAllRanks) {
  for (const bool own_programs : {false, true}) {
    Plan plan = EmptyPlan();
    ProgramBuilder b(plan);
    const int x = b.Feed(0, kN), loss = b.Value("loss", kN), sum = b.Value("sum", kN);
    b.Launch("Map", {x}, {loss});
    b.Collective(Collective::kAllReduceSum, loss, sum);
    plan.programs.push_back(b.Take());
    AddStep(plan, {0, 0});
    plan.entries[0].fetches.push_back({"loss", sum, -1});
    if (own_programs) OwnProgram(plan, 1);
    plan.entries[0].ranks[1].fetches = {sum};
    EXPECT_EQ(Faults(plan), "");
    plan.entries[0].fetches[0].buffer = plan.entries[0].ranks[1].fetches[0] = loss;
    ExpectFault(plan, "ranks", {"is not the same on all ranks that provide it"});
    plan.entries[0].ranks[1].fetches = {-1};
    EXPECT_EQ(Faults(plan), "");  // as of a device that gathers the samples
  }
}

TEST(VerifySharing, RejectsSumsThatAreOnlySummedAgain) {
  for (const bool read : {false, true}) {
    Plan plan = EmptyPlan();
    const int w = AddState(plan, "w", kN);
    ProgramBuilder b(plan);
    const int x = b.Feed(0, kN), s = b.State(w), once = b.Value("once", kN), twice = b.Value("twice", kN), both = b.Value("both", kN),
              next = b.State(w, "'");
    const int y = b.Value("y", kN);
    b.Launch("Map", {x}, {y});
    b.Collective(Collective::kAllReduceSum, y, once);
    b.Collective(Collective::kAllReduceSum, once, twice);
    b.Launch("Mix", {twice, read ? once : s}, {both});
    b.Launch("Update", {s, both}, {next});
    plan.programs.push_back(b.Take());
    AddStep(plan, {0, 0});
    if (read) {
      EXPECT_EQ(Faults(plan), "");  // as of a square of a sum, of which each sample has the same gradient
    } else {
      ExpectFault(plan, "ranks", {"sums 'once'"});
    }
  }
}

}  // namespace
}  // namespace gradloom
