// A reduce gives each of its sums to one rank.
#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "runtime/plan/verify_plan.h"
#include "tests/verify/faults.h"
#include "tests/verify/plan_builder.h"

namespace gradloom {
namespace {

constexpr int64_t kN = 16;

std::string Faults(const Plan& plan) { return Text(Verify(plan, FindTestKernel)); }

// The reduce of the sample "owners": gradients 'dv' and 'dw' of both ranks, of which rank 0 gets the first sum and rank 1 the second.
Instruction& ReduceOf(Plan& plan, size_t program) { return plan.programs.Mutable(program).instructions[2]; }

TEST(VerifyReduce, RanksAgreeOnRoots) {
  EXPECT_EQ(Faults(Sample("owners")), "");
  Plan plan = Sample("owners");
  ReduceOf(plan, 0).roots = {0, 0};
  ExpectFault(plan, "ranks", {"rank 0, #2", "lacks the sum of 'dw'", "whose root is rank 0"});
  plan = Sample("owners");
  ReduceOf(plan, 1).roots = {0, 0};
  ExpectFault(plan, "ranks", {"rank 1, #2", "has the sum of 'dw'", "whose root is rank 0"});
}

TEST(VerifyReduce, RootsAreMembers) {
  for (const int root : {-1, 2}) {
    Plan plan = Sample("owners");
    for (size_t p : {0, 1}) ReduceOf(plan, p).roots = {0, root};
    ExpectFault(plan, "ranks", {"root " + std::to_string(root) + " is out of range: the group has 2 members"});
  }
  Plan plan = Sample("owners");
  for (size_t p : {0, 1}) ReduceOf(plan, p).roots = {0};
  ExpectFault(plan, "ranks", {"has 1 roots for 2 operands"});
  plan = Sample("owners");
  for (size_t p : {0, 1}) ReduceOf(plan, p).root = 1;
  ExpectFault(plan, "ranks", {"root 1 is out of range"});
  // An all-reduce has none.
  plan = Sample("replicas");
  for (Instruction& i : plan.programs.Mutable(0).instructions) {
    if (i.kind == InstructionKind::kCollective) i.roots = {0};
  }
  ExpectFault(plan, "ranks", {"has 1 roots for 1 operands"});
}

// Whatever a rank makes of a sum, it cannot be that of a reduce to another rank.
TEST(VerifyReduce, OnlyTheRootReadsTheSum) {
  // All ranks run the program, which has the sum.
  Plan plan = Sample("replicas");
  for (Instruction& i : plan.programs.Mutable(0).instructions) {
    if (i.kind != InstructionKind::kCollective) continue;
    i.collective = Collective::kReduceSum;
    i.roots = {0};
  }
  ExpectFault(plan, "ranks", {"rank 1", "has the sum of 'bucket'", "whose root is rank 0"});
  // The other rank gets the sum in place of its part, and updates with it.
  plan = Sample("owners");
  Program& program = plan.programs.Mutable(1);
  Instruction& reduce = program.instructions[2];
  reduce.uses[2].buffer = static_cast<int>(program.buffers.size());
  program.buffers.push_back(program.buffers[static_cast<size_t>(reduce.uses[0].buffer)]);
  program.instructions[3].uses[1].buffer = reduce.uses[2].buffer;
  ExpectFault(plan, "ranks", {"rank 1, #2", "has the sum of 'dv'", "whose root is rank 0"});
}

TEST(VerifyReduce, OperandsFit) {
  // In place.
  Plan plan = Sample("owners");
  const auto buffer = [&](size_t use) -> Buffer& {
    return plan.programs.Mutable(0).buffers[static_cast<size_t>(ReduceOf(plan, 0).uses[use].buffer)];
  };
  buffer(2).offset = buffer(0).offset;
  EXPECT_EQ(Faults(plan), "");
  // The part of the sum for the other rank would be overwritten while it is read.
  buffer(2).offset = buffer(1).offset;
  ExpectFault(plan, "writes", {"over its own operand"});
  plan = Sample("owners");
  buffer(2).dtype = DType::kInt32;
  ExpectFault(plan, "bounds", {"of another type, size or layout"});
  // An operand must be there, on every rank.
  plan = Sample("owners");
  ReduceOf(plan, 0).uses[1].buffer = -1;
  ExpectFault(plan, "names", {"takes 2 reads and 2 writes"});
  plan = Sample("owners");
  ReduceOf(plan, 0).tag = 7;
  ExpectFault(plan, "ranks", {"is matched with", "another collective, tag, type, root, layout or size"});
}

// Its sums are of all ranks with the part of the model, and of all samples.
TEST(VerifyReduce, SumsOverAllSamples) {
  Plan plan = EmptyPlan();
  ProgramBuilder b(plan);
  const int x = b.Feed(0, kN), y = b.Value("y", kN), sum = b.Value("sum", kN);
  b.Launch("Map", {x}, {y});
  b.Reduce({y}, {sum}, {0});
  plan.programs.push_back(b.Take());
  plan.groups = {{{0}}, {{1}}};
  Entry& entry = AddEntry(plan, EntryKind::kEval, 2 * kN, {0, 0});
  entry.feeds.push_back({"x", DType::kFloat32, {2 * kN}, 0});
  entry.ranks[1].groups = {1};
  ExpectFault(plan, "ranks", {"sums over group 0, which lacks ranks that hold the same part of the model"});
}

}  // namespace
}  // namespace gradloom
