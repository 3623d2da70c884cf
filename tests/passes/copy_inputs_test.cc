// Compares inputs that are copied ahead of their step with inputs that are read in place.
#include "compiler/passes/schedule/copy_inputs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/data/dataset.h"
#include "runtime/plan/verify_plan.h"
#include "runtime/session/session.h"
#include "runtime/session/trainer.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

// Sequences with the samples along axis 1, so the samples of one device are not contiguous.
const std::string kSequences = R"(
g (float[5, 6, 4] x) => (float[6, 3] z)
<float[4, 3] w = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9}> {
  t = MatMul (x, w)
  u = Tanh (t)
  z = ReduceMean <keepdims = 0, axes = [0]> (u)
}
)";

std::vector<Batch> Make(const std::vector<int64_t>& sizes) {
  std::mt19937 random(5);
  std::vector<Batch> batches;
  for (int64_t size : sizes) batches.push_back({{"x", Random(random, Shape{5, size, 4})}, {"target", Classes(random, size, 3)}});
  return batches;
}

CompileOptions Options(int devices, bool all) {
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {6});
  options.import.batch_axis = 1;
  options.recipe.copy_inputs = all;
  return options;
}

int CopyStreams(const Plan& plan) {
  int count = 0;
  for (const Program& program : plan.programs) {
    count += static_cast<int>(
        std::count_if(program.streams.begin(), program.streams.end(), [](const Stream& s) { return s.kind == StreamKind::kCopy; }));
  }
  return count;
}

TEST(CopyInputs, KeepsBits) {
  const Model model = ModelOf(kSequences);
  const std::vector<Batch> batches = Make({6, 6, 6, 6, 6});
  const auto one = Train(model, Options(1, false), batches);
  ExpectSameBits(one, Train(model, Options(1, true), batches));
  ExpectSameBits(one, Train(model, Options(1, true), batches, 2));
  for (int devices : {2, 3}) {
    SCOPED_TRACE(devices);
    const auto some = Train(model, Options(devices, false), batches);
    ExpectNear(one, some, 2e-5);
    ExpectSameBits(some, Train(model, Options(devices, true), batches));
    CompileOptions streams = Options(devices, true);
    streams.recipe.streams = 2;
    ExpectSameBits(some, Train(model, streams, batches, 3));
  }
}

TEST(CopyInputs, CopiesOnlyWhatCannotBeReadInPlace) {
  const Model model = ModelOf(kSequences);
  EXPECT_EQ(CopyStreams(Compile(model, Options(1, false))), 0);
  const Plan plan = Compile(model, Options(2, false));
  EXPECT_GT(CopyStreams(plan), 0);
  for (const Program& program : plan.programs) {
    for (const Instruction& i : program.instructions) {
      if (i.kind != InstructionKind::kCopy) continue;
      EXPECT_EQ(program.buffers[static_cast<size_t>(i.uses[0].buffer)].name, "x");
    }
  }
}

TEST(CopyInputs, NextInputsAreRequestedDuringAStep) {
  const Model model = ModelOf(kSequences);
  const std::vector<Batch> batches = Make({6, 6, 6});
  Session session(std::make_shared<const Plan>(Compile(model, Options(2, true))));
  ASSERT_TRUE(session.copies_inputs());
  std::atomic<int> asked{0};
  for (size_t i = 0; i < batches.size(); ++i) {
    const Feeds feeds = Views(batches[i]), next = Views(batches[(i + 1) % batches.size()]);
    session.Step(feeds, [&] { return ++asked, &next; });
    session.FinishPrefetch();
    EXPECT_EQ(asked, static_cast<int>(i) + 1);
  }
}

// The memory of feeds that were copied ahead may get other contents, or become that of other feeds.
TEST(CopyInputs, DroppedInputsAreCopiedAgain) {
  const Model model = ModelOf(kSequences);
  std::vector<Batch> batches = Make({6, 6, 6});
  const auto plan = std::make_shared<const Plan>(Compile(model, Options(2, true)));
  Session session(plan), other(plan);
  const Feeds last = Views(batches[2]);
  session.Step(Views(batches[0]));
  session.Step(Views(batches[1]), [&] { return &last; });
  session.DropPrefetch();
  std::ranges::fill(batches[2].at("x").as<float>(), 0.5F);
  for (size_t i : {0, 1}) other.Step(Views(batches[i]));
  EXPECT_EQ(session.Step(last).loss, other.Step(last).loss);
}

// The inputs of a trainer's batches, too: of a full one, and of the short last one of an epoch, which has no next one.
TEST(CopyInputs, ATrainerMakesTheNextBatchDuringAStep) {
  constexpr int64_t kRows = 40;
  std::mt19937 random(9);
  const Dataset data({{"x", Random(random, Shape{kRows, 4})}, {"target", Classes(random, kRows, 3)}});
  const Model model = ModelOf("g (float[N, 4] x) => (float[N, 3] z) <" + Weights(random, "w", Shape{4, 3}) + "> { z = MatMul (x, w) }");
  const auto trained = [&](bool all) {
    CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 2, {3, 1});
    options.recipe.copy_inputs = all;
    Session session(std::make_shared<const Plan>(Compile(model, options)));
    EXPECT_EQ(session.copies_inputs(), all);
    TrainerObserver observer;
    Trainer(session, data, Dataset(), {.epochs = 2, .batch = 3}, observer).Run();
    return std::map<std::string, Tensor>{{"w", session.Get("w")}};
  };
  ExpectSameBits(trained(false), trained(true));
}

TEST(CopyInputs, CopyStreamOnlyCopies) {
  Plan plan = Compile(ModelOf(kSequences), Options(1, true));
  ASSERT_TRUE(Verify(plan).empty());
  Program& program = plan.programs.Mutable(0);
  const auto copy =
      std::find_if(program.streams.begin(), program.streams.end(), [](const Stream& s) { return s.kind == StreamKind::kCopy; });
  ASSERT_NE(copy, program.streams.end());
  const auto launch = std::find_if(program.instructions.begin(), program.instructions.end(),
                                   [](const Instruction& i) { return i.kind == InstructionKind::kLaunch; });
  launch->stream = static_cast<int>(copy - program.streams.begin());
  const std::vector<PlanFault> faults = Verify(plan);
  ASSERT_FALSE(faults.empty());
  EXPECT_TRUE(std::any_of(faults.begin(), faults.end(), [](const PlanFault& fault) {
    return fault.message.find("a copy stream runs ahead of its step") != std::string::npos;
  }));
}

}  // namespace
}  // namespace gradloom
