// Sums over a part of the ranks, transfers, and ranges of values.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/error.h"
#include "runtime/plan/verify_plan.h"
#include "tests/verify/plan_builder.h"

namespace gradloom {
namespace {

constexpr int64_t kN = 16;

std::string Text(const std::vector<PlanFault>& faults) {
  std::string text;
  for (const PlanFault& fault : faults) text += "[" + std::string(fault.check) + "] " + fault.where + ": " + fault.message + "\n";
  return text;
}

// Expects a fault of this check whose text contains all of these.
void ExpectFault(const Plan& plan, std::string_view check, std::initializer_list<std::string_view> says) {
  const std::vector<PlanFault> faults = Verify(plan, FindTestKernel);
  for (const PlanFault& fault : faults) {
    const std::string all = fault.where + ": " + fault.message;
    if (fault.check == check &&
        std::all_of(says.begin(), says.end(), [&](std::string_view word) { return all.find(word) != std::string::npos; }))
      return;
  }
  ADD_FAILURE() << "no fault of '" << check << "' that says \"" << *says.begin() << "\" ...; found:\n" << Text(faults);
}

Plan Sample(const std::string& name) {
  for (auto& [known, plan] : SamplePlans()) {
    if (known == name) return plan;
  }
  throw Error(ErrorCode::kInternal, "no sample plan " + name);
}

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
