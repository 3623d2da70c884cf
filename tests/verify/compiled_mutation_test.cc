// Tests the verifier with faults planted in compiled plans of real models, on several streams and devices. A mutant is refused, or it
// computes the plan's bits with any delays; the latter are listed.
//
// GRADLOOM_MUTANTS: the number of places at which each kind of fault is tried in each program or rank (default 1; 0 tries all).
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "compiler/compile.h"
#include "compiler/verify_launches.h"
#include "gtest/gtest.h"
#include "runtime/exec/host_executor.h"
#include "runtime/plan/verify_plan.h"
#include "tests/conformance/random_placement.h"
#include "tests/conformance/training_case.h"
#include "tests/seed/test_seed.h"
#include "tests/verify/mutations.h"

namespace gradloom {
namespace {

constexpr int kOrders = 3;  // the number of random orders in which a surviving mutant runs

// The one before the last two relates samples, which the first device gathers. The last ones have branches and loops that are decided
// during a step, and run on one device.
const char* const kCases[] = {"cases/housing_mlp",      "cases/linear_5_2",         "cases/lenet",
                              "cases/lstm_classifier",  "cases/recommender",        "cases/unet_small",
                              "cases/tiny_gpt",         "cases/convnet_bn_frozen",  "cases/mobilenet_v2_tiny",
                              "cases/resnet_cifar",     "recorded/clip_accumulate", "recorded/related_nt_xent_six_dynamo",
                              "recorded/control_until", "recorded/control_branches"};

bool IsDecided(std::string_view name) { return name.starts_with("recorded/control_"); }
bool IsRelated(std::string_view name) { return name.starts_with("recorded/related_"); }

uint64_t Number(const char* variable, uint64_t otherwise) {
  const char* given = std::getenv(variable);
  return given != nullptr ? std::strtoull(given, nullptr, 10) : otherwise;
}

// Streams per device, the number of devices, how many of them together hold one replica of the model, and whether the first of them gathers
// the samples and computes the loss (of a model that relates samples it does so in any case).
struct Parallel {
  int streams, devices, stages = 1;
  bool gathers = false;
  bool shards = false;  // whether they share out the optimizer's state
  int pipeline = 1;     // micro-batches that the stages compute at the same time
};

Plan PlanOf(const TrainingCase& recorded, const Parallel& parallel) {
  CompileOptions options;
  options.recipe = recorded.recipe;
  options.recipe.threads = 1;
  options.recipe.streams = parallel.streams;
  options.recipe.devices = parallel.devices;
  options.recipe.sync_bn = parallel.devices % 2 == 0;
  options.recipe.copy_inputs = parallel.devices == 2 || parallel.streams == 2;
  options.entries.push_back({EntryKind::kStep, recorded.batch_sizes.front()});
  const Model model = Model::Load(recorded.model_path);
  options.recipe.shard_optimizer = parallel.shards;
  if (parallel.gathers) options.recipe.gather_to = 0;
  if (parallel.stages > 1) options.recipe.place = RandomPlacement(model, options, parallel.stages, 1);
  options.recipe.pipeline = parallel.pipeline;
  Plan plan = Compile(model, options);
  plan.model.bytes.clear();  // never read here, and copied for each mutant
  return plan;
}

// The bytes of all fetches and of the state, over two steps of the first entry and one of each other entry.
std::string Outcome(const std::shared_ptr<const Plan>& plan, const TrainingCase& recorded, uint64_t chaos) {
  HostExecutor executor(plan);
  executor.SetChaos(chaos);
  std::string bytes;
  const auto keep = [&](const TensorView& view) { bytes.append(static_cast<const char*>(view.data), static_cast<size_t>(view.bytes())); };
  const auto run = [&](size_t entry, int step) {
    std::vector<TensorView> feeds;
    for (const Feed& feed : plan->entries[entry].feeds) feeds.push_back(recorded.batches.at(feed.name + std::to_string(step)).view());
    executor.Run(static_cast<int>(entry), feeds, {.lr = 0.01F, .step = step + 1, .batch = step, .seed = 7});
    for (size_t f = 0; f < plan->entries[entry].fetches.size(); ++f) keep(executor.Fetched(static_cast<int>(entry), static_cast<int>(f)));
  };
  const auto keep_state = [&] {
    for (const StateTensor& state : plan->state) keep(executor.state().Get(state).view());
  };
  run(0, 0);
  for (size_t entry = 0; entry < plan->entries.size(); ++entry) {
    run(entry, 1);
    keep_state();
  }
  return bytes;
}

// The checks that a plan file gets. Kernel rows rely on operands that fit their operator, which VerifyLaunches checks.
bool IsRefused(const Plan& plan) {
  try {
    VerifyLaunches(plan);
  } catch (const Error&) {
    return true;
  }
  return !Verify(plan).empty();
}

bool HasEqualFeeds(const Plan& plan) {
  const std::vector<Feed>& feeds = plan.entries[0].feeds;
  for (size_t i = 0; i < feeds.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (feeds[i].dtype == feeds[j].dtype && feeds[i].shape == feeds[j].shape) return true;
    }
  }
  return false;
}

struct Row {
  int mutants = 0, caught = 0, equivalent = 0;
};

TEST(CompiledMutations, AreRefusedOrChangeNothing) {
  const uint64_t wanted = Number("GRADLOOM_MUTANTS", 1), seed = TestSeed();
  std::map<std::string_view, Row> table;
  Row all;
  int plans = 0;
  for (const char* name : kCases) {
    const TrainingCase recorded = ReadTrainingCase(std::string("tests/conformance/") + name);
    for (const Parallel& parallel : {Parallel{1, 1},
                                     {2, 1},
                                     {4, 1},
                                     {1, 2},
                                     {2, 3},
                                     {1, 8},
                                     {1, 3, 3},
                                     {1, 4, 2},
                                     {1, 3, 1, true},
                                     {2, 2, 1, true},
                                     {2, 3, 1, false, true},
                                     {1, 2, 2, false, false, 3},
                                     {1, 4, 2, false, false, 2}}) {
      if (IsDecided(name) && parallel.devices > 1) continue;
      // Samples are gathered if nothing else is placed.
      if (IsRelated(name) && (parallel.gathers || parallel.shards || parallel.stages > 1)) continue;
      const Plan plan = PlanOf(recorded, parallel);
      const std::string outcome = Outcome(std::make_shared<const Plan>(plan), recorded, 0);
      SampleMutations(wanted, seed + static_cast<uint64_t>(plans));
      ++plans;
      for (const MutationKind& kind : MutationKinds()) {
        // With another feed of the same type it is a different plan, which is just as sound.
        if (kind.name == "another feed" && HasEqualFeeds(plan)) continue;
        Row& row = table[kind.name];
        kind.for_each(plan, [&](const Plan& mutant, const std::string& site) {
          ++row.mutants, ++all.mutants;
          if (IsRefused(mutant)) {
            ++row.caught, ++all.caught;
            return;
          }
          const std::string what = std::string(name) + " on " + std::to_string(parallel.devices) + " devices (" +
                                   std::to_string(parallel.stages) + " a copy) with " + std::to_string(parallel.streams) + " streams, " +
                                   (parallel.gathers ? "gathering, " : "") + (parallel.shards ? "sharing out states, " : "") +
                                   (parallel.pipeline > 1 ? std::to_string(parallel.pipeline) + " micro-batches, " : "") +
                                   std::string(kind.name) + ", " + site;
          const auto survivor = std::make_shared<const Plan>(mutant);
          for (uint64_t order = 0; order < kOrders; ++order) {
            try {
              if (Outcome(survivor, recorded, order) == outcome) continue;
              ADD_FAILURE() << "accepted, and it changes what the plan does: " << what;
            } catch (const Error& error) {
              ADD_FAILURE() << "accepted, and fails: " << what << "\n" << error.Describe();
            }
            return;
          }
          ++row.equivalent, ++all.equivalent;
        });
      }
    }
  }
  SampleMutations(0, 0);
  std::printf("%d plans\n%-40s %8s %8s %10s\n", plans, "kind", "mutants", "caught", "equivalent");
  for (const auto& [kind, row] : table) {
    std::printf("%-40s %8d %8d %10d\n", std::string(kind).c_str(), row.mutants, row.caught, row.equivalent);
  }
  std::printf("%-40s %8d %8d %10d\n", "all", all.mutants, all.caught, all.equivalent);
  EXPECT_GT(all.caught, 0);
}

}  // namespace
}  // namespace gradloom
