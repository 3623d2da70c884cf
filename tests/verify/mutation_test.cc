// Tests the verifier with planted faults: every mutant is refused, or computes the same as the plan in any order of its streams.
#include <cstdio>
#include <map>

#include "gtest/gtest.h"
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

}  // namespace
}  // namespace gradloom
