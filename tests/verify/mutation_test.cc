// Tests the verifier with planted faults: every mutant is refused, or computes the same as the plan in any order of its streams.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/plan/settled.h"
#include "runtime/plan/text.h"
#include "runtime/plan/verify_plan.h"
#include "tests/verify/mutations.h"
#include "tests/verify/plan_builder.h"
#include "tests/verify/simulator.h"

namespace gradloom {
namespace {

constexpr uint32_t kOrders = 40;

TEST(Simulator, SoundPlanHasOneResult) {
  for (const auto& [name, plan] : SamplePlans()) {
    const uint64_t result = Simulate(plan, 0);
    for (uint32_t seed = 1; seed < kOrders; ++seed) EXPECT_EQ(Simulate(plan, seed), result) << name << ", seed " << seed;
  }
}

TEST(Simulator, DetectsARace) {
  Plan plan = EmptyPlan();
  ProgramBuilder b(plan, 2);
  const int a = b.Value("a", 16), c = b.Value("c", 16);
  b.Launch("Fill", {}, {a}, 0);
  b.Launch("Map", {a}, {c}, 1);
  plan.programs.push_back(b.Take());
  AddEntry(plan, EntryKind::kPredict, 1, {0}).fetches.push_back({"c", c, -1});
  std::map<uint64_t, int> results;
  for (uint32_t seed = 0; seed < kOrders; ++seed) ++results[Simulate(plan, seed)];
  EXPECT_GT(results.size(), 1U);
}

TEST(Mutations, AreRefusedOrChangeNothing) {
  struct Row {
    int mutants = 0, caught = 0, equivalent = 0;
  };
  std::map<std::string_view, Row> table;
  Row all;
  for (const auto& [name, plan] : SamplePlans()) {
    const uint64_t wanted = Simulate(plan, 0);
    for (const MutationKind& kind : MutationKinds()) {
      Row& row = table[kind.name];
      kind.for_each(plan, [&, plan_name = name](const Plan& mutant, const std::string& site) {
        ++row.mutants, ++all.mutants;
        if (!Verify(mutant, FindTestKernel).empty()) {
          ++row.caught, ++all.caught;
          return;
        }
        for (uint32_t seed = 0; seed < kOrders; ++seed) {
          if (Simulate(mutant, seed) == wanted) continue;
          ADD_FAILURE() << "accepted, and it changes what '" << plan_name << "' does: " << kind.name << ", " << site << "\n"
                        << PlanText(mutant);
          return;
        }
        ++row.equivalent, ++all.equivalent;
      });
    }
  }
  std::printf("%-40s %8s %8s %10s\n", "kind", "mutants", "caught", "equivalent");
  for (const MutationKind& kind : MutationKinds()) {
    const Row& row = table[kind.name];
    std::printf("%-40s %8d %8d %10d\n", std::string(kind.name).c_str(), row.mutants, row.caught, row.equivalent);
    EXPECT_GT(row.mutants, 0) << kind.name << " finds no place in any plan";
  }
  std::printf("%-40s %8d %8d %10d\n", "all", all.mutants, all.caught, all.equivalent);
}

// A plan, or a mutant that is sound.
void ForEachSound(const std::function<void(const Plan& plan, const std::string& site)>& f) {
  for (const auto& [name, plan] : SamplePlans()) {
    f(plan, name);
    for (const MutationKind& kind : MutationKinds()) {
      kind.for_each(plan, [&, plan_name = name](const Plan& mutant, const std::string& site) {
        if (Verify(mutant, FindTestKernel).empty()) f(mutant, plan_name + ": " + std::string(kind.name) + ", " + site);
      });
    }
  }
}

std::vector<bool> None(size_t, size_t) { return {}; }

// The second of two runs gives the same without its settled instructions.
TEST(Settled, MayBeLeftOut) {
  int plans = 0, settled = 0;
  ForEachSound([&](const Plan& plan, const std::string& site) {
    std::vector<std::vector<std::vector<bool>>> found(plan.entries.size());  // by entry and rank
    int count = 0;
    for (size_t e = 0; e < plan.entries.size(); ++e) {
      for (size_t r = 0; r < plan.entries[e].ranks.size(); ++r) {
        const std::vector<bool>& of_rank = found[e].emplace_back(SettledInstructions(plan, e, r));
        count += static_cast<int>(std::count(of_rank.begin(), of_rank.end(), true));
      }
    }
    if (count == 0) return;
    ++plans, settled += count;
    const uint64_t wanted = SimulateRepeats(plan, 0, None);
    for (uint32_t seed = 1; seed < kOrders; ++seed) {
      if (SimulateRepeats(plan, seed, [&](size_t e, size_t r) { return found[e][r]; }) == wanted) continue;
      ADD_FAILURE() << site << "\n" << PlanText(plan);
      return;
    }
  });
  std::printf("%d sound plans with %d settled instructions\n", plans, settled);
  EXPECT_GT(plans, 100);
}

// What would change if an instruction were left out whose result is overwritten: the simulator sees it.
TEST(Settled, OverwrittenResultsAreMadeAgain) {
  for (const auto& [name, plan] : SamplePlans()) {
    if (name != "weights") continue;
    const std::vector<bool> settled = SettledInstructions(plan, 0, 0);
    const Program& program = plan.programs[0];
    const auto writes_e = [&](const Instruction& instruction) {
      return !instruction.uses.empty() && program.buffers[static_cast<size_t>(instruction.uses.back().buffer)].name == "e";
    };
    const auto found = std::find_if(program.instructions.begin(), program.instructions.end(), [&](const Instruction& instruction) {
      return instruction.kind == InstructionKind::kLaunch && instruction.op == "Map" && writes_e(instruction);
    });
    ASSERT_NE(found, program.instructions.end());
    const auto at = static_cast<size_t>(found - program.instructions.begin());
    EXPECT_FALSE(settled[at]);
    std::vector<bool> more = settled;
    more[at] = true;
    EXPECT_NE(SimulateRepeats(plan, 0, [&](size_t, size_t) { return more; }), SimulateRepeats(plan, 0, None));
    return;
  }
  FAIL() << "no such plan";
}

}  // namespace
}  // namespace gradloom
