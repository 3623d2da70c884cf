// Devices that share out the optimizer's state compute the bits that they compute when each has all of it.
#include "compiler/passes/devices/shard_updates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "runtime/base/error.h"
#include "runtime/plan/memory_report.h"
#include "runtime/plan/verify_plan.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

const std::string kClassifier = R"(
g (float[N, 4] x) => (float[N, 3] z)
<float[4, 6] w = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9, 1.1, -0.6, 0.8, -1.3, 0.4, -0.9, 0.6, 1.2, -0.7, 0.5, -1.1, 0.35},
 float[6] b = {0.1, -0.2, 0.3, 0.05, -0.15, 0.25}, float[6] s = {1, 1, 1, 1, 1, 1}, float[6] t = {0, 0, 0, 0, 0, 0},
 float[6] m = {0, 0, 0, 0, 0, 0}, float[6] d = {1, 1, 1, 1, 1, 1},
 float[6, 3] v = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9, 1.1, -0.6, 0.8, -1.3, 0.4, -0.9}>
{
  h = MatMul (x, w)
  k = Add (h, b)
  n = BatchNormalization (k, s, t, m, d)
  a = Tanh (n)
  z = MatMul (a, v)
}
)";

const std::vector<LossTerm> kLosses = {{.type = "cross_entropy", .output = "z", .target = "y"}};
const std::vector<int64_t> kSizes = {10, 7, 1};

std::vector<Batch> Batches() {
  std::mt19937 random(3);
  std::vector<Batch> batches;
  for (int64_t size : {10, 10, 7, 1, 7, 10}) {
    Batch& batch = batches.emplace_back();
    batch.emplace("x", Random(random, Shape{size, 4}));
    batch.emplace("y", Classes(random, size, 3));
  }
  return batches;
}

struct Setting {
  std::string name;
  std::function<void(CompileOptions&)> change;
};

std::vector<Setting> Settings() {
  std::vector<Setting> settings = {{"amsgrad", [](CompileOptions& o) { o.recipe.optimizer.amsgrad = true; }},
                                   {"clipped", [](CompileOptions& o) { o.recipe.optimizer.clip_norm = 0.05; }},
                                   {"averages", [](CompileOptions& o) { o.recipe.optimizer.ema = 0.9; }},
                                   {"two_streams",
                                    [](CompileOptions& o) {
                                      o.recipe.streams = 2;
                                      o.recipe.bucket_bytes = 1;
                                    }},
                                   {"bfloat16", [](CompileOptions& o) { o.recipe.precision = Precision::kBfloat16; }},
                                   {"scaled_loss",
                                    [](CompileOptions& o) {
                                      o.recipe.precision = Precision::kFloat16;
                                      o.recipe.loss_scale = {.initial = 65536.0 * 65536,
                                                             .growth_interval = 2};  // the first updates are skipped
                                    }},
                                   {"accumulated_and_clipped",
                                    [](CompileOptions& o) {
                                      o.recipe.accumulate = 2;
                                      o.recipe.fetch_outputs = false;
                                      o.recipe.optimizer.clip_norm = 0.05;
                                    }},
                                   {"accumulated",
                                    [](CompileOptions& o) {
                                      o.recipe.accumulate = 2;
                                      o.recipe.fetch_outputs = false;
                                    }},
                                   {"recomputed", [](CompileOptions& o) { o.recipe.recompute = RecomputeMode::kFull; }},
                                   {"statistics_of_all", [](CompileOptions& o) { o.recipe.sync_bn = true; }},
                                   {"late_updates", [](CompileOptions& o) { o.control.disabled = {"order_nodes"}; }},
                                   {"fetched_gradients", [](CompileOptions& o) { o.recipe.fetch_gradients = true; }}};
  for (const std::string& type : OptimizerTypes()) {
    settings.push_back({type, [type](CompileOptions& o) {
                          o.recipe.optimizer.type = type;
                          if (type == "sgd" || type == "momentum" || type == "nesterov") o.recipe.optimizer.momentum = 0.9;
                        }});
  }
  return settings;
}

// Gradients that are fetched are summed for all devices.
CompileOptions OptionsOf(const Setting& setting, int devices, bool shards) {
  CompileOptions options = OptionsFor(kLosses, devices, kSizes);
  options.recipe.fetch_gradients = false;
  setting.change(options);
  options.recipe.shard_optimizer = shards;
  return options;
}

class ShardUpdatesTest : public ::testing::TestWithParam<Setting> {};

TEST_P(ShardUpdatesTest, ComputesTheSameBits) {
  const Model model = ModelOf(kClassifier);
  const std::vector<Batch> batches = Batches();
  for (int devices : {2, 3, 8}) {
    SCOPED_TRACE(std::to_string(devices) + " devices");
    const auto whole = Train(model, OptionsOf(GetParam(), devices, false), batches);
    ExpectSameBits(whole, Train(model, OptionsOf(GetParam(), devices, true), batches));
    ExpectSameBits(whole, Train(model, OptionsOf(GetParam(), devices, true), batches, 5));
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, ShardUpdatesTest, ::testing::ValuesIn(Settings()),
                         [](const ::testing::TestParamInfo<Setting>& info) { return info.param.name; });

// Each state of the optimizer is on one device, with the others of its parameter, and the devices have about equally many bytes.
TEST(ShardUpdates, SharesOutBytes) {
  const Model model = ModelOf(kClassifier);
  const Setting adam{"adam", [](CompileOptions&) {}};
  const MemoryReport whole = ReportMemory(Compile(model, OptionsOf(adam, 3, false)));
  const Plan plan = Compile(model, OptionsOf(adam, 3, true));
  const MemoryReport shared = ReportMemory(plan);
  ASSERT_EQ(shared.places.size(), 3U);
  int64_t all = 0;
  for (const PlaceMemory& place : shared.places) {
    all += place.optimizer;
    EXPECT_EQ(place.parameters, whole.places[0].parameters);
    EXPECT_GT(place.optimizer, 0);
    EXPECT_LE(place.optimizer, 2 * 24 * 4);  // the moments of `w`, the largest
  }
  EXPECT_EQ(all, whole.places[0].optimizer);
  std::map<int, std::set<int>> of_parameter;
  for (const StateTensor& state : plan.state) {
    if (state.kind == StateKind::kOptimizer) {
      ASSERT_EQ(state.places.size(), 1U) << state.name;
      of_parameter[state.parameter].insert(state.places[0]);
    } else {
      EXPECT_TRUE(state.places.empty()) << state.name;
    }
  }
  for (const auto& [parameter, places] : of_parameter) EXPECT_EQ(places.size(), 1U) << parameter;
}

// An update without states would only be sent around.
TEST(ShardUpdates, LeavesUpdatesWithoutStatesToAll) {
  const Setting sgd{"sgd", [](CompileOptions& o) { o.recipe.optimizer.type = "sgd"; }};
  const Plan plan = Compile(ModelOf(kClassifier), OptionsOf(sgd, 2, true));
  for (const Program& program : plan.programs) {
    for (const Instruction& instruction : program.instructions)
      EXPECT_FALSE(instruction.kind == InstructionKind::kCollective && instruction.collective == Collective::kBroadcast);
  }
}

// The collectives of one kind in an entry, by rank.
std::vector<std::vector<const Instruction*>> CollectivesOf(const Plan& plan, const Entry& entry, Collective collective) {
  std::vector<std::vector<const Instruction*>> found;
  for (const RankBinding& rank : entry.ranks) {
    std::vector<const Instruction*>& own = found.emplace_back();
    for (const Instruction& instruction : plan.programs[static_cast<size_t>(rank.program)].instructions) {
      if (instruction.kind == InstructionKind::kCollective && instruction.collective == collective) own.push_back(&instruction);
    }
  }
  return found;
}

size_t Operands(const std::vector<const Instruction*>& collectives) {
  size_t operands = 0;
  for (const Instruction* collective : collectives) operands += collective->uses.size() / 2;
  return operands;
}

// Each gradient is summed for the device that updates with it. What is left of an all-reduce is another collective, but however many owners
// there are, they have one.
TEST(ShardUpdates, SumsGradientsForTheirOwners) {
  const Setting adam{"adam", [](CompileOptions&) {}};
  const Plan whole = Compile(ModelOf(kClassifier), OptionsOf(adam, 3, false)),
             plan = Compile(ModelOf(kClassifier), OptionsOf(adam, 3, true));
  for (size_t e = 0; e < plan.entries.size(); ++e) {
    const Entry& entry = plan.entries[e];
    if (entry.batch == 1) continue;  // which is not divided
    const auto reduces = CollectivesOf(plan, entry, Collective::kReduceSum), sums = CollectivesOf(plan, entry, Collective::kAllReduceSum);
    const auto all = CollectivesOf(whole, whole.entries[e], Collective::kAllReduceSum);
    for (size_t r = 0; r < entry.ranks.size(); ++r) {
      EXPECT_EQ(Operands(reduces[r]), 5U);  // of w, b, s, t, v
      EXPECT_EQ(Operands(reduces[r]) + Operands(sums[r]), Operands(all[r]));
      EXPECT_LT(reduces[r].size(), all[r].size());
      EXPECT_LE(sums[r].size(), all[r].size());
      const Program& program = plan.programs[static_cast<size_t>(entry.ranks[r].program)];
      size_t owned = 0;
      for (const Instruction* reduce : reduces[r]) {
        for (const Use& use : reduce->uses) owned += use.access == Access::kWrite && use.buffer >= 0 ? 1 : 0;
      }
      std::set<int> parameters;
      for (const StateTensor& state : plan.state) {
        if (state.kind == StateKind::kOptimizer && state.in_place(program.place)) parameters.insert(state.parameter);
      }
      EXPECT_EQ(owned, parameters.size()) << r;
    }
  }
}

// What other devices need is summed for all.
TEST(ShardUpdates, SumsForAllWhatOthersRead) {
  const auto reduced = [](const std::function<void(CompileOptions&)>& change) {
    const Plan plan = Compile(ModelOf(kClassifier), OptionsOf({"adam", change}, 3, true));
    return Operands(CollectivesOf(plan, plan.entries[0], Collective::kReduceSum)[0]);
  };
  EXPECT_EQ(reduced([](CompileOptions&) {}), 5U);
  EXPECT_EQ(reduced([](CompileOptions& o) { o.recipe.optimizer.clip_value = 0.1; }), 5U);
  EXPECT_EQ(reduced([](CompileOptions& o) { o.recipe.optimizer.ema = 0.9; }), 5U);
  EXPECT_EQ(reduced([](CompileOptions& o) { o.recipe.fetch_gradients = true; }), 0U);
}

// Clipping and a loss scale need only the sum of squares of another device's gradients, and these take one collective.
TEST(ShardUpdates, TellsSquaresOfGradients) {
  const auto collectives = [](const std::function<void(CompileOptions&)>& change) {
    const Plan plan = Compile(ModelOf(kClassifier), OptionsOf({"adam", change}, 3, true));
    EXPECT_TRUE(Verify(plan).empty());
    const auto reduces = CollectivesOf(plan, plan.entries[0], Collective::kReduceSum)[0],
               sums = CollectivesOf(plan, plan.entries[0], Collective::kAllReduceSum)[0];
    return std::array<size_t, 3>{Operands(reduces), sums.size(), Operands(sums)};
  };
  const std::array<size_t, 3> adam = collectives([](CompileOptions&) {}), told{5, adam[1] + 1, adam[2] + 5};
  EXPECT_EQ(adam[0], 5U);
  EXPECT_EQ(collectives([](CompileOptions& o) { o.recipe.optimizer.clip_norm = 0.05; }), told);
  EXPECT_EQ(collectives([](CompileOptions& o) {
              o.recipe.optimizer.clip_norm = 0.05;
              o.recipe.precision = Precision::kFloat16;
              o.recipe.loss_scale = {.initial = 256};
            }),
            told);
}

// Accumulated gradients stay parts, which the last batch sums.
TEST(ShardUpdates, SumsAccumulatedGradientsForTheirOwners) {
  const Plan plan = Compile(ModelOf(kClassifier),
                            OptionsOf({"adam",
                                       [](CompileOptions& o) {
                                         o.recipe.accumulate = 2;
                                         o.entries = {{EntryKind::kAccumulate, 10}, {EntryKind::kLastBatch, 10}, {EntryKind::kUpdate, 0}};
                                       }},
                                      3, true));
  for (const Entry& entry : plan.entries) {
    const size_t gradients = entry.kind == EntryKind::kAccumulate ? 0 : 5;
    for (const auto& reduces : CollectivesOf(plan, entry, Collective::kReduceSum)) EXPECT_EQ(Operands(reduces), gradients);
  }
}

// All devices would get the old value from one that does not update it.
TEST(ShardUpdates, ARootUpdatesWhatItBroadcasts) {
  Plan plan = Compile(ModelOf(kClassifier), OptionsOf({"adam", [](CompileOptions&) {}}, 3, true));
  EXPECT_TRUE(Verify(plan).empty());
  for (size_t p = 0; p < plan.programs.size(); ++p) {
    for (Instruction& instruction : plan.programs.Mutable(p).instructions) {
      if (instruction.kind == InstructionKind::kCollective && instruction.collective == Collective::kBroadcast)
        instruction.root = (instruction.root + 1) % 3;
    }
  }
  ASSERT_FALSE(Verify(plan).empty());
  EXPECT_NE(Verify(plan)[0].message.find("broadcasts a state that the rank itself does not change"), std::string::npos);
}

// A batch size that is compiled later finds the states where they are.
TEST(ShardUpdates, ExtendsAPlan) {
  const Model model = ModelOf(kClassifier);
  CompileOptions options = OptionsOf({"adam", [](CompileOptions&) {}}, 3, true);
  options.entries.resize(1);
  const Plan plan = Compile(model, options);
  for (const EntryRequest& request :
       {EntryRequest{EntryKind::kStep, 5}, EntryRequest{EntryKind::kEval, 4}, EntryRequest{EntryKind::kPredict, 1}}) {
    const Plan extended = AddEntry(model, options, plan, request);
    EXPECT_TRUE(Extends(extended, plan));
    EXPECT_EQ(extended.state.size(), plan.state.size());
  }
}

TEST(ShardUpdates, RefusesWhatItCannotDivide) {
  const Model model = ModelOf(kClassifier);
  const auto message = [&](const std::function<void(Recipe&)>& change) -> std::string {
    CompileOptions options = OptionsOf({"adam", [](CompileOptions&) {}}, 4, true);
    change(options.recipe);
    try {
      Compile(model, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      return error.message();
    }
    return "";
  };
  EXPECT_NE(message([](Recipe& recipe) { recipe.gather_to = 0; }).find("gathers the samples"), std::string::npos);
  EXPECT_NE(message([](Recipe& recipe) { recipe.place = {{.pattern = "v", .stage = 1}}; }).find("placed on devices"), std::string::npos);
  EXPECT_EQ(message([](Recipe& recipe) { recipe.devices = 1; }), "");
}

}  // namespace
}  // namespace gradloom
