// Compares several devices that share a batch with one device that has all of it.
#include "compiler/passes/devices/replicate_data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/plan/text.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

const std::string kClassifier = R"(
g (float[N, 4] x) => (float[N, 3] z)
<float[4, 6] w = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9, 1.1, -0.6, 0.8, -1.3, 0.4, -0.9, 0.6, 1.2, -0.7, 0.5, -1.1, 0.35},
 float[6] b = {0.1, -0.2, 0.3, 0.05, -0.15, 0.25},
 float[6, 3] v = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9, 1.1, -0.6, 0.8, -1.3, 0.4, -0.9}>
{
  h = MatMul (x, w)
  s = Add (h, b)
  a = Tanh (s)
  z = MatMul (a, v)
}
)";

Batch FeaturesAndClasses(std::mt19937& random, int64_t size, int64_t classes) {
  Batch batch;
  batch.emplace("x", Random(random, Shape{size, 4}));
  batch.emplace("y", Classes(random, size, classes));
  return batch;
}
Batch ClassifierBatch(std::mt19937& random, int64_t size) { return FeaturesAndClasses(random, size, 3); }
Batch FeaturesOfFourClasses(std::mt19937& random, int64_t size) { return FeaturesAndClasses(random, size, 4); }

// 10 samples over 8 devices are five shards of 2; 3 over 8 leave five devices empty; a single sample is trained by all.
TEST(ReplicateData, UnevenShardsAndEmptyDevices) {
  ExpectDivides(kClassifier, {{.type = "cross_entropy", .output = "z", .target = "y"}}, {10, 10, 3, 1}, ClassifierBatch);
}

// Denominators cover the global batch, whatever samples and weights a device ignores.
TEST(ReplicateData, IgnoredClassesAndWeights) {
  ExpectDivides(
      kClassifier,
      {{.type = "cross_entropy", .output = "z", .target = "y", .ignore_index = 1, .label_smoothing = 0.1, .class_weight = {1, 2, 0.5}},
       {.type = "output", .output = "z", .weight = 0.1}},
      {7, 7}, ClassifierBatch);
}

TEST(ReplicateData, ClippingAndAccumulation) {
  ExpectDivides(kClassifier, {{.type = "cross_entropy", .output = "z", .target = "y"}}, {6, 6, 4, 4}, ClassifierBatch,
                [](CompileOptions& options) {
                  options.recipe.optimizer.clip_norm = 0.05;
                  options.recipe.accumulate = 2;
                });
}

// The number of elements that devices sum in an entry of this kind.
int64_t ElementsSummed(const Plan& plan, EntryKind kind) {
  const Entry& entry = *std::find_if(plan.entries.begin(), plan.entries.end(), [&](const Entry& e) { return e.kind == kind; });
  const Program& program = plan.programs[static_cast<size_t>(entry.ranks[0].program)];
  int64_t elements = 0;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.kind != InstructionKind::kCollective) continue;
    for (const Use& use : instruction.uses) {
      if (use.access == Access::kRead) elements += program.buffers[static_cast<size_t>(use.buffer)].shape.elements();
    }
  }
  return elements;
}

// Each device accumulates its own gradients, and they are summed over devices before the update. The last batch of the run waits for one
// that never comes. A single sample is trained by all devices, each of which takes its share. The gradient of `u` does not depend on
// samples, and must not be counted once per device.
TEST(ReplicateData, AccumulatedGradientsAreSummedOncePerUpdate) {
  const std::string graph = R"(
g (float[N, 4] x, float scale) => (float[N, 3] z, float p)
<float[4, 3] w = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9}, float[3] b = {0.1, -0.2, 0.3}, float[5] u = {1, -2, 3, 0.5, 0.2}>
{
  h = MatMul (x, w)
  s = Add (h, b)
  z = Tanh (s)
  v = Mul (u, scale)
  p = ReduceSumSquare <keepdims = 0> (v)
}
)";
  const std::vector<LossTerm> losses = {{.type = "cross_entropy", .output = "z", .target = "y"}, {.type = "output", .output = "p"}};
  const auto accumulates = [](CompileOptions& options) {
    options.recipe.accumulate = 3;
    options.recipe.optimizer.clip_norm = 0.5;
    options.recipe.fetch_gradients = false;
    options.recipe.fetch_outputs = false;
  };
  const auto batch = [](std::mt19937& random, int64_t size) {
    Batch made = ClassifierBatch(random, size);
    made.emplace("scale", Tensor::Scalar<float>(0.3F));
    return made;
  };
  ExpectDivides(graph, losses, {7, 3, 1, 1, 7, 3, 2}, batch, accumulates);
  CompileOptions options = OptionsFor(losses, 4, {7});
  accumulates(options);
  const Plan plan = Compile(ModelOf(graph), options);
  EXPECT_LE(ElementsSummed(plan, EntryKind::kAccumulate), 2);  // of the loss
  EXPECT_EQ(ElementsSummed(plan, EntryKind::kUpdate), 12 + 3 + 5);
  EXPECT_GE(ElementsSummed(plan, EntryKind::kLastBatch), 12 + 3 + 5);
  EXPECT_LE(ElementsSummed(plan, EntryKind::kLastBatch), 12 + 3 + 5 + 2);
  for (const StateTensor& state : plan.state)
    EXPECT_EQ(state.partial, state.kind == StateKind::kAccumulator && state.parameter >= 0) << state.name;
}

// The last batch of an update all-reduces the gradients of the last layer before those of the first are computed.
TEST(ReplicateData, LastBatchOverlapsAllReducesWithBackward) {
  const std::string graph = R"(
g (float[N, 4] x) => (float[N, 3] z)
<float[4, 3] w = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9}, float[3, 3] v = {0.1, -0.2, 0.3, 1, 2, -1, 0.5, 0.2, -0.3}>
{
  h = MatMul (x, w)
  s = Tanh (h)
  z = MatMul (s, v)
}
)";
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "y"}}, 2, {8});
  options.recipe.accumulate = 2;
  options.recipe.fetch_gradients = false;
  options.recipe.bucket_bytes = 1;
  const Plan plan = Compile(ModelOf(graph), options);
  const Program& program = plan.programs[static_cast<size_t>(plan.entries[plan.FindEntry(EntryKind::kLastBatch, 8)].ranks[0].program)];
  // The instruction that sums a gradient of this shape, and the one that completes it.
  const auto find = [&](const Shape& shape, Access access, InstructionKind kind) {
    const auto& all = program.instructions;
    const auto found = std::find_if(all.begin(), all.end(), [&](const Instruction& instruction) {
      return instruction.kind == kind && std::any_of(instruction.uses.begin(), instruction.uses.end(), [&](const Use& use) {
               if (use.buffer < 0 || use.access != access) return false;
               const Buffer& buffer = program.buffers[static_cast<size_t>(use.buffer)];
               return buffer.shape == shape && buffer.name.find("grad_total") != std::string::npos;
             });
    });
    EXPECT_NE(found, all.end()) << ProgramText(program);
    return found - all.begin();
  };
  const auto sum_v = find(Shape{3, 3}, Access::kRead, InstructionKind::kCollective);
  const auto make_w = find(Shape{4, 3}, Access::kWrite, InstructionKind::kLaunch);
  EXPECT_LT(sum_v, make_w) << ProgramText(program);
}

// The same in float16, where the update detects whether a gradient overflowed on any device.
TEST(ReplicateData, AccumulatedGradientsOfAScaledLoss) {
  ExpectDivides(kClassifier, {{.type = "cross_entropy", .output = "z", .target = "y"}}, {6, 6, 4, 4}, ClassifierBatch,
                [](CompileOptions& options) {
                  options.recipe.accumulate = 2;
                  options.recipe.fetch_gradients = false;
                  options.recipe.loss_scale = {.initial = 1024, .growth_interval = 1};
                });
}

// At a batch size of 2, twice the mean over samples is a sum; at any other size it is not.
TEST(ReplicateData, BatchSizesThatSimplifyDifferently) {
  ExpectDivides(kClassifier, {{.type = "mse", .output = "z", .target = "y", .weight = 6}}, {2, 2}, [](std::mt19937& random, int64_t size) {
    Batch batch;
    batch.emplace("x", Random(random, Shape{size, 4}));
    batch.emplace("y", Random(random, Shape{size, 3}));
    return batch;
  });
}

// Conditions that are equal on all devices: of weights, and of feeds without a batch axis.
TEST(ReplicateData, BranchesAndLoopsIndependentOfSamples) {
  ExpectDivides(R"(
g (float[N, 4] x, float limit, int64 n) => (float[N, 3] z)
<float[4, 3] w = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9}, float[4, 3] v = {0.4, -0.9, 0.6, 1.2, -0.7, 0.5, -1.1, 0.35, 0.8, 0.6, -0.3, 0.2},
 int64 most = {4}, bool yes = {1}>
{
  m = ReduceMax <keepdims = 0> (w)
  big = Greater (m, limit)
  k = If (big) <
    then_branch = then_graph () => (float[4, 3] t) { t = Tanh (w) },
    else_branch = else_graph () => (float[4, 3] e) { e = Mul (w, v) }
  >
  few = Min (n, most)
  f = Loop (few, yes, k) <
    body = body_graph (int64 i, bool going, float[4, 3] s) => (bool again, float[4, 3] next) {
      again = Identity (going)
      p = Mul (s, v)
      next = Add (p, w)
    }
  >
  z = MatMul (x, f)
}
)",
                {{.type = "mse", .output = "z", .target = "y"}}, {10, 10, 3}, [count = 0](std::mt19937& random, int64_t size) mutable {
                  Batch batch;
                  batch.emplace("x", Random(random, Shape{size, 4}));
                  batch.emplace("y", Random(random, Shape{size, 3}));
                  batch.emplace("limit", Tensor::Scalar<float>(count % 2 == 0 ? 0.5f : 5.0f));
                  batch.emplace("n", Tensor::Scalar<int64_t>(count++ % 3));
                  return batch;
                });
}

const char kBranches[] = R"(
g (float[N, 4] x) => (float[N, 3] z)
<float[4, 4] w = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9, 1.1, -0.6, 0.8, -1.3}, float[4] b = {0.4, -0.9, 0.6, 1.2},
 float[4, 3] v = {0.4, -0.9, 0.6, 1.2, -0.7, 0.5, -1.1, 0.35, 0.8, 0.6, -0.3, 0.2}, float zero = {0}>
{
  s = REDUCED
  positive = Greater (s, zero)
  h = If (positive) <
    then_branch = then_graph () => (float[N, 4] t) { p = MatMul (x, w) q = Add (p, b) t = Tanh (q) },
    else_branch = else_graph () => (float[N, 4] e) { k = MatMul (x, w) m = ReduceMean <axes = [1]> (k) c = Sub (k, m) e = Sigmoid (c) }
  >
  z = MatMul (h, v)
}
)";

// Samples for which one branch is taken or the other, depending on `tilt`.
Batch TiltedBatch(std::mt19937& random, int64_t size, float tilt) {
  Batch batch;
  batch.emplace("x", Random(random, Shape{size, 4}));
  for (float& value : batch.at("x").as<float>()) value += tilt;
  batch.emplace("y", Random(random, Shape{size, 3}));
  return batch;
}

// If the global batch decides, all devices decide alike: each takes the branch that one device would take, with its own samples.
TEST(ReplicateData, BranchesDecidedByTheGlobalBatch) {
  for (const char* reduced : {"ReduceSum <keepdims = 0> (x)", "ReduceMean <keepdims = 0> (x)"}) {
    SCOPED_TRACE(reduced);
    std::string graph = kBranches;
    graph.replace(graph.find("REDUCED"), 7, reduced);
    ExpectDivides(
        graph, {{.type = "mse", .output = "z", .target = "y"}}, {10, 10, 3, 10},
        [count = 0](std::mt19937& random, int64_t size) mutable { return TiltedBatch(random, size, count++ % 2 == 0 ? 0.6f : -0.6f); });
  }
}

// A loop over values of the samples, repeated while a sum over the batch requires it. Gradients of the weights that it reads are partial
// sums.
TEST(ReplicateData, LoopsOverSamples) {
  ExpectDivides(R"(
g (float[N, 4] x) => (float[N, 4] z)
<float[4, 4] w = {0.1, -0.2, 0.5, 0.1, 0.3, 0.2, -0.1, 0.1, 0.7, -0.4, 0.2, 0.9, 0.1, -0.6, 0.8, -0.3}, float[4] b = {0.4, -0.9, 0.6, 1.2},
 int64 most = {4}, int64 least = {1}, bool yes = {1}>
{
  s = ReduceSum <keepdims = 0> (x)
  size = Abs (s)
  whole = Cast <to = 7> (size)
  few = Clip (whole, least, most)
  zero = Sub (s, s)
  h, total = Loop (few, yes, x, zero) <
    body = body_graph (int64 i, bool going, float[N, 4] c, float t) => (bool again, float[N, 4] next, float sum) {
      again = Identity (going)
      p = MatMul (c, w)
      q = Add (p, b)
      r = Tanh (q)
      next = Add (c, r)
      n = ReduceSum <keepdims = 0> (r)
      sum = Add (t, n)
    }
  >
  z = Add (h, total)
}
)",
                {{.type = "mse", .output = "z", .target = "y"}}, {10, 10, 3}, [](std::mt19937& random, int64_t size) {
                  Batch batch;
                  batch.emplace("x", Random(random, Shape{size, 4}));
                  batch.emplace("y", Random(random, Shape{size, 4}));
                  return batch;
                });
}

// Extremes, norms and products over all samples, and their gradients.
TEST(ReplicateData, ReductionsOverSamples) {
  for (const char* reduced : {"ReduceMax <axes = [0]> (h)", "ReduceMin <keepdims = 0> (h)", "ReduceL2 <axes = [0]> (h)",
                              "ReduceLogSumExp <axes = [0], keepdims = 0> (h)"}) {
    SCOPED_TRACE(reduced);
    ExpectDivides(R"(
g (float[N, 4] x) => (float[N, 4] z)
<float[4, 4] w = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9, 1.1, -0.6, 0.8, -1.3}>
{
  h = MatMul (x, w)
  m = )" + std::string(reduced) +
                      R"(
  z = Sub (h, m)
}
)",
                  {{.type = "mse", .output = "z", .target = "y"}}, {10, 3}, [](std::mt19937& random, int64_t size) {
                    Batch batch;
                    batch.emplace("x", Random(random, Shape{size, 4}));
                    batch.emplace("y", Random(random, Shape{size, 4}));
                    return batch;
                  });
  }
}

// The mask of an element depends on its position in the global batch.
TEST(ReplicateData, DropoutMatchesOneDevice) {
  ExpectDivides(R"(
g (float[N, 4, 3] x) => (float[N, 4, 3] z) <float[4, 1] w = {1, -2, 0.5, 3}, float r = {0.4}, bool t = {1}>
{
  h = Mul (x, w)
  turned = Transpose <perm = [2, 0, 1]> (h)
  some = Dropout (turned, r, t)
  z = Transpose <perm = [1, 2, 0]> (some)
}
)",
                {{.type = "mse", .output = "z", .target = "y"}}, {10, 10, 5}, [](std::mt19937& random, int64_t size) {
                  Batch batch;
                  batch.emplace("x", Random(random, Shape{size, 4, 3}));
                  batch.emplace("y", Random(random, Shape{size, 4, 3}));
                  return batch;
                });
}

// Also within nested branches and loops; each iteration draws different numbers.
TEST(ReplicateData, RandomNumbersInBodiesMatchOneDevice) {
  ExpectDivides(R"(
g (float[N, 4] x) => (float[N, 4] z)
<float[4, 4] w = {0.1, -0.2, 0.5, 0.1, 0.3, 0.2, -0.1, 0.1, 0.7, -0.4, 0.2, 0.9, 0.1, -0.6, 0.8, -0.3}, float zero = {0}, float r = {0.4}, bool t = {1},
 int64 most = {4}, int64 least = {2}, bool yes = {1}>
{
  s = ReduceSum <keepdims = 0> (x)
  positive = Greater (s, zero)
  size = Abs (s)
  whole = Cast <to = 7> (size)
  few = Clip (whole, least, most)
  h = If (positive) <
    then_branch = then_graph () => (float[N, 4] a) {
      a = Loop (few, yes, x) <
        body = body_graph (int64 i, bool going, float[N, 4] c) => (bool again, float[N, 4] next) {
          again = Identity (going)
          p = MatMul (c, w)
          turned = Transpose <perm = [1, 0]> (p)
          some = Dropout (turned, r, t)
          back = Transpose <perm = [1, 0]> (some)
          next = Add (c, back)
        }
      >
    },
    else_branch = else_graph () => (float[N, 4] e) { k = MatMul (x, w) u = RandomNormalLike <scale = 0.5> (k) e = Mul (k, u) }
  >
  z = Tanh (h)
}
)",
                {{.type = "mse", .output = "z", .target = "y"}}, {10, 10, 3, 10}, [count = 0](std::mt19937& random, int64_t size) mutable {
                  Batch batch = TiltedBatch(random, size, count++ % 2 == 0 ? 0.6f : -0.6f);
                  batch.at("y") = Random(random, Shape{size, 4});
                  return batch;
                });
}

const std::string kNormalized = R"(
g (float[N, 3, 2, 2] x) => (float[N, 3, 2, 2] z)
<float[3] s = {1, 2, -0.5}, float[3] b = {0, 0.1, 0.2}, float[3] m = {0, 0, 0}, float[3] v = {1, 1, 1}, float[3, 1, 1] w = {1, -2, 0.5}>
{
  h = Mul (x, w)
  n = BatchNormalization <momentum = 0.75> (h, s, b, m, v)
  z = Tanh (n)
}
)";

Batch ImageBatch(std::mt19937& random, int64_t size) {
  Batch batch;
  batch.emplace("x", Random(random, Shape{size, 3, 2, 2}));
  batch.emplace("y", Random(random, Shape{size, 3, 2, 2}));
  return batch;
}

TEST(ReplicateData, SynchronizedBatchStatisticsMatchOneDevice) {
  ExpectDivides(kNormalized, {{.type = "mse", .output = "z", .target = "y"}}, {9, 9, 4}, ImageBatch, [](CompileOptions& options) {
    options.recipe.sync_bn = true;
    // The gradient of w is only rounding error, which Adam would turn into full steps. On one device the activation is fused with the
    // normalization differently, which rounds elsewhere.
    options.recipe.optimizer.type = "sgd";
    options.control.disabled = {"split_batch_norm"};
  });
}

// By default each device normalizes by its own samples. The running statistics are averages weighted by the number of samples.
TEST(ReplicateData, LocalBatchStatisticsAreAveraged) {
  std::mt19937 random(3);
  const std::vector<Batch> batches{ImageBatch(random, 5)};
  const auto results = Train(ModelOf(kNormalized), OptionsFor({{.type = "mse", .output = "z", .target = "y"}}, 2, {5}), batches);
  const auto x = batches[0].at("x").as<float>();
  const float weights[3] = {1, -2, 0.5};
  for (size_t c = 0; c < 3; ++c) {
    double expected = 0;
    // Three samples and two.
    for (const auto& [begin, end] : {std::pair<size_t, size_t>(0, 3), std::pair<size_t, size_t>(3, 5)}) {
      double sum = 0, squares = 0;
      const double count = static_cast<double>((end - begin) * 4);
      for (size_t n = begin; n < end; ++n) {
        for (size_t i = 0; i < 4; ++i) {
          const double value = static_cast<double>(x[n * 12 + c * 4 + i] * weights[c]);
          sum += value;
          squares += value * value;
        }
      }
      expected += static_cast<double>(end - begin) / 5 * (0.75 + 0.25 * (squares / count - sum * sum / count / count));
    }
    EXPECT_NEAR(results.at("v").as<float>()[c], expected, 1e-5);
  }
}

// Samples along an axis other than the first, and targets flattened with the samples inside.
TEST(ReplicateData, SamplesAlongTheSecondAxis) {
  ExpectDivides(R"(
g (float[5, 6, 3] x) => (float[M, 4] z)
<float[1, 8, 3] w = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9, 1.1, -0.6, 0.8, -1.3, 0.4, -0.9, 0.6, 1.2, -0.7, 0.5, -1.1, 0.35},
 float[1, 8, 2] r = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9, 1.1, -0.6, 0.8, -1.3}, float[2, 4] v = {1, -1, 2, 0.5, -0.3, 0.7, 1.5, -2},
 int64[2] flat = {-1, 2}>
{
  h = LSTM <hidden_size = 2> (x, w, r)
  rows = Reshape (h, flat)
  z = MatMul (rows, v)
}
)",
                {{.type = "cross_entropy", .output = "z", .target = "y"}}, {6},
                [](std::mt19937& random, int64_t size) {
                  Batch batch;
                  batch.emplace("x", Random(random, Shape{5, size, 3}));
                  batch.emplace("y", Classes(random, 5 * size, 4));
                  return batch;
                },
                [](CompileOptions& options) { options.import.batch_axis = 1; });
}

// Sums that become ready one after the other share a collective. A sum that is read earlier is all-reduced earlier.
TEST(ReplicateData, BucketsGatherSums) {
  const auto all_reduce_sizes = [](int64_t bucket_bytes) {
    CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "y"}}, 2, {6});
    options.recipe.fetch_gradients = false;
    options.recipe.bucket_bytes = bucket_bytes;
    const Plan plan = Compile(ModelOf(kClassifier), options);
    std::vector<size_t> operands;
    for (const Instruction& instruction : plan.programs[0].instructions) {
      if (instruction.kind == InstructionKind::kCollective) operands.push_back(instruction.uses.size() / 2);
    }
    return operands;
  };
  // The denominator of the loss; then the loss itself with the gradients of v, b and w.
  EXPECT_EQ(all_reduce_sizes(1 << 20), (std::vector<size_t>{1, 4}));
  EXPECT_EQ(all_reduce_sizes(1), (std::vector<size_t>{1, 1, 1, 1, 1}));
  // 4 bytes of loss and 72 of v, then 96 of w, then 24 of b.
  EXPECT_EQ(all_reduce_sizes(100), (std::vector<size_t>{1, 2, 1, 1}));
  EXPECT_EQ(all_reduce_sizes(120), (std::vector<size_t>{1, 2, 2}));
}

// Predictions are returned in the order of the fed samples.
TEST(ReplicateData, PredictionsAreGatheredInOrder) {
  std::mt19937 random(11);
  const Model model = ModelOf(kClassifier);
  const Tensor x = Random(random, Shape{10, 4});
  std::map<int, Tensor> outputs;
  for (int devices : {1, 2, 3, 8}) {
    CompileOptions options = OptionsFor({}, devices, {});
    options.entries = {{EntryKind::kPredict, 10}};
    Session session(std::make_shared<const Plan>(Compile(model, options)));
    outputs.emplace(devices, session.Predict({{"x", x.view()}}).at("z"));
    ASSERT_EQ(outputs.at(devices).shape(), (Shape{10, 3}));
    for (int64_t i = 0; i < 30; ++i) {
      EXPECT_NEAR(outputs.at(devices).as<float>()[static_cast<size_t>(i)], outputs.at(1).as<float>()[static_cast<size_t>(i)], 1e-6);
    }
  }
}

Error Refused(const std::string& graph, const std::vector<LossTerm>& losses) {
  CompileOptions options = OptionsFor(losses, 2, {6});
  options.recipe.gather_related = false;
  try {
    Compile(ModelOf(graph), options);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "this model divides";
  return Error(ErrorCode::kInternal, "none");
}

// PyTorch's slice_scatter: slices are written along an axis after the one that selects them, which holds the samples.
TEST(ReplicateData, SliceScatter) {
  const std::string graph = R"(
g (float[N, 4] x) => (float[N, 4] z)
<float[4, 4] w = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9, 1.1, -0.6, 0.8, -1.3}, float[4, 2] v = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1},
 int64[2, 1] rows = {1, 3}>
{
  h = MatMul (x, w)
  k = MatMul (x, v)
  ht = Transpose <perm = [1, 0]> (h)
  kt = Transpose <perm = [1, 0]> (k)
  s = ScatterND (ht, rows, kt)
  z = Transpose <perm = [1, 0]> (s)
}
)";
  ExpectDivides(graph, {{.type = "cross_entropy", .output = "z", .target = "y"}}, {10, 3, 1}, FeaturesOfFourClasses);
}

// Two heads per sample along one axis, with a constant per head that repeats from sample to sample.
TEST(ReplicateData, ConstantsThatRepeatPerSample) {
  const std::string graph = R"(
g (float[N, 4] x) => (float[N, 4] z)
<float[4, 4] w = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9, 1.1, -0.6, 0.8, -1.3}, int64[2, 1] slopes = {1, 2},
 int64[2] apart = {-1, 2}, int64[2] joined = {-1, 4}, int64[1] first = {0}, int64[1] one = {1}>
{
  h = MatMul (x, w)
  heads = Reshape (h, apart)
  size = Shape (x)
  batch = Slice (size, first, one)
  repeats = Concat <axis = 0> (batch, one)
  tiled = Tile (slopes, repeats)
  bias = Cast <to = 1> (tiled)
  moved = Add (heads, bias)
  bent = Tanh (moved)
  z = Reshape (bent, joined)
}
)";
  ExpectDivides(graph, {{.type = "cross_entropy", .output = "z", .target = "y"}}, {10, 3, 1}, FeaturesOfFourClasses);
}

// The error names an operator that mixes samples.
TEST(ReplicateData, RejectsOperatorsThatMixSamples) {
  const std::vector<LossTerm> losses{{.type = "output", .output = "z"}};
  for (const auto& [node, why] : std::map<std::string, std::string>{
           {"z = Softmax <axis = 0> (h)", "it operates along the batch axis"},
           {"z = ReduceLogSum <axes = [0]> (h)", "it reduces over samples in a way that devices cannot combine"},
           {"i = Cast <to = 7> (h) m = ReduceMean <axes = [0]> (i) c = Cast <to = 1> (m) z = Add (h, c)",
            "it rounds a mean over samples to an integer"},
           {"z = CumSum (h, zero)", "it accumulates along the batch axis"},
           {"t = Transpose <perm = [1, 0]> (h) z = MatMul (h, t)", "two axes that depend on the batch size"},
           {"z = Gather <axis = 0> (h, zeros)", "it gathers along the batch axis"},
           {"z = ScatterND (h, first, row)", "its indices select among samples"},
           {"z = ScatterElements <axis = 1> (h, few, two)", "its indices select among samples"},
           {"t = Transpose <perm = [1, 0]> (h) z = Reshape (t, six)", "its result does not keep the elements of a sample together"},
       }) {
    const Error error = Refused(
        "g (float[N, 6] x) => (float z) <float[6] w = {1, 2, 3, 4, 5, 6}, int64 zero = {0}, int64[2] zeros = {0, 0}, "
        "int64[1, 1] first = {0}, float[1, 6] row = {1, 2, 3, 4, 5, 6}, int64[2] six = {-1, 6}, int64[1, 2] few = {0, 1}, "
        "float[1, 2] two = {1, 2}> { h = Mul (x, w) " +
            node + " }",
        losses);
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(error.message().find(why), std::string::npos) << error.message();
    EXPECT_NE(error.help().find("train on one device"), std::string::npos) << error.help();
  }
}

// The batch of a vector is not moved to a second axis either, where nothing would prevent the division.
TEST(ReplicateData, RejectsGathersOfSamplesByNumber) {
  const Error error = Refused(
      "g (float[6] x) => (float[6, 2] z) <float[1, 2] w = {1, 2}, int64[1] one = {1}, int64[6] order = {1, 0, 3, 2, 4, 5}> "
      "{ column = Unsqueeze (x, one) h = MatMul (column, w) z = Gather (h, order) }",
      {{.type = "output", .output = "z"}});
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_NE(error.message().find("selects samples of the batch by index"), std::string::npos) << error.message();
}

// Nor is it moved to an axis that one device treats differently: the elements of a sample can be divided, and any number of them can be
// fed.
TEST(ReplicateData, KeepsTheBatchAxisOfOneDevice) {
  const Error error = Refused(
      "g (float[3, 6] x) => (float[3, 3] z) <float[1, 1] w = {2}, float[1, 1] v = {0.5}> "
      "{ k = Mul (x, w) h = Add (k, v) t = Transpose <perm = [1, 0]> (h) z = MatMul (h, t) }",
      {{.type = "output", .output = "z"}});
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_NE(error.message().find("two axes that depend on the batch size"), std::string::npos) << error.message();
}

// Like torch.chunk.
TEST(DivideBatch, MatchesTorchChunk) {
  const auto lengths = [](int64_t batch, int devices) {
    std::vector<int64_t> made;
    int64_t start = 0;
    for (const BatchShard& shard : DivideBatch(batch, devices)) {
      EXPECT_EQ(shard.start, start);
      start += shard.length;
      made.push_back(shard.length);
    }
    EXPECT_EQ(start, batch);
    return made;
  };
  EXPECT_EQ(lengths(30, 8), (std::vector<int64_t>{4, 4, 4, 4, 4, 4, 4, 2}));
  EXPECT_EQ(lengths(10, 8), (std::vector<int64_t>{2, 2, 2, 2, 2, 0, 0, 0}));
  EXPECT_EQ(lengths(10, 3), (std::vector<int64_t>{4, 4, 2}));
  EXPECT_EQ(lengths(1, 2), (std::vector<int64_t>{1, 0}));
}

}  // namespace
}  // namespace gradloom
