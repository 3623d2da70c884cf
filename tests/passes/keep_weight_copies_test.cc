// Training with 16-bit copies of parameters as state gives the same bits as training that casts the parameters in every step.
#include "compiler/passes/precision/keep_weight_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "compiler/passes/update/add_optimizer.h"
#include "runtime/plan/loss_scale_state.h"
#include "runtime/plan/verify_plan.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

constexpr int64_t kBatch = 12;

// A table that is also the last layer's weight, a layer whose weight two products read, and a bias.
Model SharedWeights(std::mt19937& random) {
  return ModelOf("g (int64[N] word, float[N, 24] x) => (float[N, 7] z)\n<" + Weights(random, "table", {7, 24}) + ",\n" +
                 Weights(random, "w", {24, 24}) + ",\n" + Weights(random, "c", {24}) +
                 ">\n{\n e = Gather (table, word)\n s = Add (e, x)\n" +
                 " [fc1] h = Gemm (s, w, c)\n r = Relu (h)\n [fc2] k = MatMul (r, w)\n [head] z = Gemm <transB = 1> (k, table)\n}\n");
}

std::vector<Batch> Sentences(std::mt19937& random, const std::vector<int64_t>& sizes) {
  std::vector<Batch> batches;
  for (int64_t size : sizes)
    batches.push_back({{"word", Classes(random, size, 7)}, {"x", Random(random, Shape{size, 24})}, {"target", Classes(random, size, 7)}});
  return batches;
}

// Convolutions that prefer their own layouts, one of them with groups.
Model Images(std::mt19937& random) {
  return ModelOf("g (float[N, 3, 9, 7] x) => (float[N, 5] z)\n<" + Weights(random, "w0", {16, 3, 3, 3}) + ",\n" +
                 Weights(random, "b0", {16}) + ",\n" + Weights(random, "w1", {16, 16, 3, 3}, 0.2F) + ",\n" +
                 Weights(random, "w2", {5, 16, 1, 1}) +
                 ",\nint64[2] rest = {0, -1}> {\n  a = Conv (x, w0, b0)\n  b = Relu (a)\n"
                 "  c = Conv <pads = [1, 1, 1, 1]> (b, w1)\n  d = Relu (c)\n  e = Conv (d, w2)\n  f = GlobalMaxPool (e)\n"
                 "  z = Reshape (f, rest)\n}\n");
}

std::vector<Batch> Pictures(std::mt19937& random, int count) {
  std::vector<Batch> batches;
  for (int i = 0; i < count; ++i)
    batches.push_back({{"x", Random(random, Shape{kBatch, 3, 9, 7})}, {"target", Classes(random, kBatch, 5)}});
  return batches;
}

CompileOptions Options(Precision precision, int devices = 1, const std::vector<int64_t>& batches = {kBatch}) {
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, batches);
  options.recipe.precision = precision;
  options.recipe.fetch_gradients = false;
  return options;
}

CompileOptions Without(CompileOptions options) {
  options.control.disabled.emplace_back("keep_weight_copies");
  return options;
}

int64_t Copies(const Plan& plan) {
  return std::count_if(plan.state.begin(), plan.state.end(), [](const StateTensor& state) { return state.derived(); });
}

// The number of instructions that cast a parameter.
int64_t CastParameters(const Plan& plan) {
  int64_t count = 0;
  for (const Program& program : plan.programs) {
    for (const Instruction& instruction : program.instructions) {
      if (instruction.op != "Cast") continue;
      const Buffer& from = program.buffers[static_cast<size_t>(instruction.uses[0].buffer)];
      count += from.arena == Arena::kState && IsFloating(from.dtype) ? 1 : 0;
    }
  }
  return count;
}

// Trains with and without copies. Train also compares each copy with its parameter, on every device.
void ExpectSame(const Model& model, const CompileOptions& options, const std::vector<Batch>& batches, int64_t copies) {
  const Plan plan = Compile(model, options);
  EXPECT_EQ(Copies(plan), copies);
  EXPECT_EQ(CastParameters(plan), 0);
  EXPECT_GT(CastParameters(Compile(model, Without(options))), 0);
  const auto kept = Train(model, options, batches);
  ExpectSameBits(Train(model, Without(options), batches), kept);
  for (uint64_t chaos : {3, 4}) ExpectSameBits(Train(model, options, batches, chaos), kept);
}

TEST(KeepWeightCopies, ChangeNoBitOfAnyOptimizer) {
  for (const std::string& optimizer : OptimizerTypes()) {
    SCOPED_TRACE(optimizer);
    std::mt19937 random(7);
    const Model model = SharedWeights(random);
    CompileOptions options = Options(Precision::kBfloat16);
    options.recipe.optimizer.type = optimizer;
    options.recipe.optimizer.momentum = 0.9;
    options.recipe.optimizer.amsgrad = optimizer == "adamw";
    options.recipe.optimizer.centered = true;
    ExpectSame(model, options, Sentences(random, {kBatch, kBatch, kBatch}), 3);
  }
}

TEST(KeepWeightCopies, FollowSkippedUpdates) {
  std::mt19937 random(8);
  const Model model = SharedWeights(random);
  for (const char* optimizer : {"adam", "lamb"}) {
    CompileOptions options = Options(Precision::kFloat16);
    options.recipe.optimizer.type = optimizer;
    // The first gradients overflow; then each update halves the scale.
    options.recipe.loss_scale = {.initial = 0x1p22, .dynamic = true};
    const std::vector<Batch> batches = Sentences(random, std::vector<int64_t>(9, kBatch));
    ExpectSame(model, options, batches, 3);
    const int64_t skipped = Train(model, options, batches).at(std::string(kSkippedUpdatesState)).as<int64_t>()[0];
    EXPECT_GT(skipped, 0);
    EXPECT_LT(skipped, 9);
  }
}

TEST(KeepWeightCopies, FollowAccumulatedUpdates) {
  std::mt19937 random(9);
  const Model model = SharedWeights(random);
  for (int devices : {1, 2}) {
    CompileOptions options = Options(Precision::kBfloat16, devices);
    options.recipe.accumulate = 2;
    ExpectSame(model, options, Sentences(random, std::vector<int64_t>(5, kBatch)), 3);
  }
}

// Shards of equal and unequal sizes, and devices without samples.
TEST(KeepWeightCopies, AreEqualOnAllReplicas) {
  std::mt19937 random(10);
  const Model model = SharedWeights(random);
  for (int devices : {2, 3, 5}) {
    SCOPED_TRACE(devices);
    CompileOptions options = Options(Precision::kBfloat16, devices, {kBatch, 3});
    options.recipe.streams = devices == 2 ? 3 : 1;
    ExpectSame(model, options, Sentences(random, {kBatch, 3, kBatch}), 3);
  }
}

// A stage keeps the copies of its own parameters; another stage that reads a parameter casts what it receives.
TEST(KeepWeightCopies, StayWithTheirStage) {
  std::mt19937 random(11);
  const Model model = SharedWeights(random);
  for (int devices : {2, 4}) {
    CompileOptions options = Options(Precision::kBfloat16, devices);
    options.recipe.place = {{"fc2", 1}, {"head", 1}};
    const Plan plan = Compile(model, options);
    for (const StateTensor& state : plan.state) {
      if (!state.derived()) continue;
      EXPECT_EQ(state.places, plan.state[static_cast<size_t>(state.parameter)].places) << state.name;
    }
    EXPECT_GT(Copies(plan), 0);
    const std::vector<Batch> batches = Sentences(random, {kBatch, kBatch});
    ExpectSameBits(Train(model, Without(options), batches), Train(model, options, batches));
  }
}

TEST(KeepWeightCopies, HaveTheLayoutOfTheirParameters) {
  std::mt19937 random(12);
  const Model model = Images(random);
  for (const Precision precision : {Precision::kBfloat16, Precision::kFloat16}) {
    const CompileOptions options = Options(precision);
    const Plan plan = Compile(model, options);
    int permuted = 0;
    for (const StateTensor& state : plan.state) {
      if (!state.derived()) continue;
      EXPECT_EQ(state.layout, plan.state[static_cast<size_t>(state.parameter)].layout) << state.name;
      permuted += state.layout.plain() ? 0 : 1;
    }
    EXPECT_GT(permuted, 0);
    ExpectSame(model, options, Pictures(random, 3), 4);
  }
}

// Whatever sets a parameter sets its copy, and other entries read it.
TEST(KeepWeightCopies, FollowGivenParameters) {
  std::mt19937 random(13);
  const Model model = SharedWeights(random);
  const Batch batch = Sentences(random, {kBatch}).front();
  std::vector<std::vector<std::byte>> results;
  const Tensor given = Random(random, Shape{24, 24});
  for (bool kept : {true, false}) {
    CompileOptions options = Options(Precision::kBfloat16);
    options.entries.push_back({EntryKind::kEval, kBatch});
    if (!kept) options = Without(options);
    Session session(std::make_shared<const Plan>(Compile(model, options)));
    EXPECT_EQ(Copies(session.plan()), kept ? 3 : 0);
    session.Step(Views(batch));
    session.Set("w", given.view());
    for (const StateTensor& state : session.plan().state) {
      if (!state.derived()) continue;
      EXPECT_THROW(session.Set(state.name, session.Get(state.name).view()), Error);
    }
    session.Forward(EntryKind::kEval, Views(batch));
    const TensorView z = session.Fetched("z");
    const auto* const bytes = static_cast<const std::byte*>(z.data);
    results.emplace_back(bytes, bytes + z.bytes());
  }
  EXPECT_EQ(results[0], results[1]);
}

// A plan in which two parameters of equal type have exchanged their copies is sound in all other respects.
TEST(KeepWeightCopies, VerifierRefusesACopyOfAnotherParameter) {
  std::mt19937 random(14);
  const Model model = ModelOf("g (float[N, 8] x) => (float[N, 8] z)\n<" + Weights(random, "u", {8, 8}) + ",\n" +
                              Weights(random, "v", {8, 8}) + ">\n{\n h = MatMul (x, u)\n r = Relu (h)\n z = MatMul (r, v)\n}\n");
  Plan plan = Compile(model, Options(Precision::kBfloat16));
  ASSERT_TRUE(Verify(plan).empty());
  Program& program = plan.programs.Mutable(0);
  std::vector<Use*> written;
  for (Instruction& instruction : program.instructions) {
    if (instruction.op == "Adam") written.push_back(&instruction.uses.back());
  }
  ASSERT_EQ(written.size(), 2U);
  // Adam's last use is the copy, on the CPU, where updates have no scratch memory. The last update writes both at their places.
  std::swap(written[0]->buffer, written[1]->buffer);
  const std::vector<PlanFault> faults = Verify(plan);
  ASSERT_FALSE(faults.empty());
  EXPECT_NE(faults[0].message.find("rounded copy"), std::string::npos) << faults[0].message;
}

TEST(KeepWeightCopies, VerifierRefusesAStaleCopy) {
  std::mt19937 random(15);
  const Model model = SharedWeights(random);
  Plan plan = Compile(model, Options(Precision::kBfloat16));
  Program& program = plan.programs.Mutable(0);
  for (Instruction& instruction : program.instructions) {
    if (instruction.op != "Adam") continue;
    // What was the copy's next value is now its old one, as in a plan that does not write it.
    Buffer& next = program.buffers[static_cast<size_t>(instruction.uses.back().buffer)];
    next.name = next.name.substr(0, next.name.rfind('/'));
    instruction.attributes.erase("copy_type");
    instruction.uses.pop_back();
    break;
  }
  bool stale = false;
  for (const PlanFault& fault : Verify(plan)) stale |= fault.message.find("rounded copy") != std::string::npos;
  EXPECT_TRUE(stale);
}

}  // namespace
}  // namespace gradloom
