// Sessions whose plan gains an entry whenever a batch of a new size arrives.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "runtime/exec/executor.h"
#include "runtime/session/session.h"
#include "tests/exec/thread_sleeps.h"
#include "tests/passes/small_training.h"
#include "tools/api/compiling_source.h"

namespace gradloom {
namespace {

// On one device the model has a separate constant for each batch size: the indices of the samples.
Model Net(std::mt19937& random, int devices) {
  const std::string moved = devices > 1 ? "  moved = Identity(h)\n" : R"(
  shape = Shape(x)
  count = Gather(shape, zero)
  numbers = Range(zero, count, one)
  real = Cast<to = 1>(numbers)
  column = Unsqueeze(real, second)
  turned = Sin(column)
  moved = Add(h, turned)
)";
  return ModelOf("net (float[N, 8] x, float[N, 4] t) => (float[N, 4] y) <" + Weights(random, "w", {8, 16}) + ", " +
                 Weights(random, "v", {16, 4}) + R"(, int64 zero = {0}, int64 one = {1}, int64[1] second = {1}> {
  h = MatMul(x, w)
)" + moved + R"(
  r = Tanh(moved)
  y = MatMul(r, v)
})");
}

std::vector<Batch> Batches(std::mt19937& random, const std::vector<int64_t>& sizes) {
  std::vector<Batch> batches;
  for (int64_t size : sizes) batches.push_back({{"x", Random(random, {size, 8})}, {"t", Random(random, {size, 4})}});
  return batches;
}

struct Way {
  int devices = 1;
  int streams = 1;
  bool copy_inputs = false;
};

CompileOptions OptionsOf(const Way& way, const std::vector<int64_t>& sizes) {
  CompileOptions options = OptionsFor({{.type = "mse", .output = "y", .target = "t"}}, way.devices, sizes);
  options.recipe.streams = way.streams;
  options.recipe.copy_inputs = way.copy_inputs;
  return options;
}

// The fetches of each step, and the final state.
std::map<std::string, Tensor> Outcome(Session& session, const std::vector<Batch>& batches, bool chaos) {
  if (chaos) session.executor().SetChaos(5);
  std::map<std::string, Tensor> results;
  for (size_t step = 0; step < batches.size(); ++step) {
    const Feeds feeds = Views(batches[step]), next = step + 1 < batches.size() ? Views(batches[step + 1]) : Feeds();
    session.Step(feeds, [&] { return next.empty() ? nullptr : &next; });
    for (const char* name : {"loss", "y"}) results.emplace(name + std::to_string(step), Tensor::Copy(session.Fetched(name)));
    session.FinishPrefetch();
  }
  for (const StateTensor& tensor : session.plan().state) results.emplace(tensor.name, session.Get(tensor.name));
  return results;
}

class Extend : public testing::TestWithParam<Way> {};

TEST_P(Extend, MatchesAPlanWithAllSizes) {
  std::mt19937 random(11);
  const Model model = Net(random, GetParam().devices);
  const std::vector<Batch> batches = Batches(random, {4, 7, 4, 2, 300, 4, 7, 300, 2, 900, 301, 4, 301});
  Session whole(std::make_shared<const Plan>(Compile(model, OptionsOf(GetParam(), {4, 7, 2, 300, 900, 301}))));
  const CompileOptions one = OptionsOf(GetParam(), {4});
  Session growing(std::make_shared<const Plan>(Compile(model, one)),
                  {.source = std::make_shared<CompilingSource>(model, one), .executor = {}});
  const Executor* const executor = &growing.executor();
  for (bool chaos : {false, true}) {
    ExpectSameBits(Outcome(whole, batches, chaos), Outcome(growing, batches, chaos));
    EXPECT_EQ(growing.plan().entries.size(), 6u);
    EXPECT_EQ(&growing.executor(), executor) << "nothing is prepared twice";
    EXPECT_EQ(growing.executor().memory()[0].allocated, whole.executor().memory()[0].allocated);
    EXPECT_EQ(growing.executor().transient_bytes(), whole.executor().transient_bytes());
  }
  // Also after the memory was released.
  growing.ReleaseMemory();
  whole.ReleaseMemory();
  ExpectSameBits(Outcome(whole, batches, false), Outcome(growing, batches, false));
}

INSTANTIATE_TEST_SUITE_P(Ways, Extend,
                         testing::Values(Way{}, Way{.streams = 2, .copy_inputs = true}, Way{.devices = 2},
                                         Way{.devices = 3, .streams = 2, .copy_inputs = true}),
                         [](const auto& info) {
                           const Way& way = info.param;
                           return std::to_string(way.devices) + "Devices" + std::to_string(way.streams) + "Streams" +
                                  (way.copy_inputs ? "Copies" : "");
                         });

// What fails while inputs are copied ahead is left to the step that needs them.
TEST(Extend, SurvivesInputsThatCannotBePrepared) {
  std::mt19937 random(11);
  const Model model = Net(random, 1);
  const CompileOptions options = OptionsOf({.streams = 2, .copy_inputs = true}, {4});
  const auto plan = std::make_shared<const Plan>(Compile(model, options));
  const std::vector<Batch> batches = Batches(random, {4, 4, 4, 4});
  const auto train = [&](const std::function<const Feeds*()>& next) {
    Session session(plan);
    std::vector<double> losses;
    for (const Batch& batch : batches) losses.push_back(session.Step(Views(batch), next).loss);
    return losses;
  };
  const std::vector<double> expected = train({});
  EXPECT_EQ(train([]() -> const Feeds* { throw std::runtime_error("a file is gone"); }), expected);
  EXPECT_EQ(train([]() -> const Feeds* { throw std::bad_alloc(); }), expected);
}

TEST(Extend, KeepsPreparedKernels) {
  std::mt19937 random(11);
  const Model model = Net(random, 1);
  const CompileOptions one = OptionsOf({}, {4});
  Session session(std::make_shared<const Plan>(Compile(model, one)),
                  {.source = std::make_shared<CompilingSource>(model, one), .executor = {}});
  session.executor().set_timed(true);
  for (const Batch& batch : Batches(random, {4})) session.Step(Views(batch));
  const auto time = [&] {
    int64_t sum = 0;
    for (int64_t each : session.executor().nanoseconds(0)) sum += each;
    return sum;
  };
  const int64_t before = time();
  EXPECT_GT(before, 0);
  const Program* const program = &session.plan().programs[0];
  for (const Batch& batch : Batches(random, {900, 5})) session.Step(Views(batch));
  EXPECT_EQ(session.plan().entries.size(), 3u);
  EXPECT_EQ(&session.plan().programs[0], program);
  EXPECT_EQ(time(), before) << "the counts of the first entry are gone, and so are its kernels";
}

// Compiles everything again for each new batch size, so that the session needs another executor.
class Recompiling : public PlanSource {
 public:
  explicit Recompiling(const Model& model) : model_(model) {}
  std::shared_ptr<const Plan> Extend(const Plan&, EntryKind, const FeedShapes& feeds) override {
    sizes_.push_back(feeds.at("x")[0]);
    CompileOptions options = OptionsOf({}, sizes_);
    options.recipe.threads = 1;
    return std::make_shared<const Plan>(Compile(model_, options));
  }

 private:
  const Model& model_;
  std::vector<int64_t> sizes_{4};
};

TEST(Extend, AnotherExecutorTakesOver) {
  std::mt19937 random(11);
  const Model model = Net(random, 1);
  CompileOptions options = OptionsOf({}, {4});
  options.recipe.threads = 1;
  Session session(std::make_shared<const Plan>(Compile(model, options)),
                  {.source = std::make_shared<Recompiling>(model), .executor = {.check_numerics = true}});
  const Executor* const executor = &session.executor();
  std::vector<Batch> batches = Batches(random, {4, 7, 7});
  batches[0].at("x").as<float>()[0] = std::numeric_limits<float>::infinity();
  session.Step(Views(batches[0]));
  const std::string origin = session.OwnNonFiniteOrigin();
  EXPECT_NE(origin.find("step 1"), std::string::npos) << origin;
  session.executor().set_timed(true);
  session.executor().SetChaos(5);
  session.Step(Views(batches[1]));
  ASSERT_NE(&session.executor(), executor);
  EXPECT_EQ(session.OwnNonFiniteOrigin(), origin) << "the step that made the first NaN was the other executor's";
  const std::vector<TimedInstruction> times = session.executor().LastTimes(session.last_entry());
  EXPECT_TRUE(std::any_of(times.begin(), times.end(), [](const TimedInstruction& timed) { return timed.end_ns > 0; }));
  const int64_t before = ThreadSleeps();
  for (int step = 0; step < 50; ++step) session.Step(Views(batches[2]));
  EXPECT_GT(ThreadSleeps() - before, 10) << "no delays";
}

// An input that all samples share, whose number of rows equals the batch size that the file was made for.
TEST(Extend, KeepsInputsWithoutBatchAxis) {
  std::mt19937 random(11);
  const Model model = ModelOf("net (float[4, 8] x, float[4, 8] table) => (float[4, 4] y) <" + Weights(random, "w", {8, 8}) + R"(> {
  h = MatMul(x, w)
  turned = Transpose(table)
  y = MatMul(h, turned)
})");
  std::vector<Batch> batches;
  for (int64_t size : {6, 4, 9, 2, 6})
    batches.push_back({{"x", Random(random, {size, 8})}, {"table", Random(random, {4, 8})}, {"t", Random(random, {size, 4})}});
  std::vector<double> losses;
  for (const int devices : {1, 2}) {
    CompileOptions options = OptionsFor({{.type = "mse", .output = "y", .target = "t"}}, devices, {6});
    options.import.shapes = {{"table[0]", 4}};
    Session session(std::make_shared<const Plan>(Compile(model, options)),
                    {.source = std::make_shared<CompilingSource>(model, options), .executor = {}});
    for (size_t i = 0; i < batches.size(); ++i) {
      const double loss = session.Step(Views(batches[i])).loss;
      if (devices == 1) losses.push_back(loss);
      EXPECT_NEAR(loss, losses[i], 1e-5 * losses[i]) << "step " << i << " on " << devices;
    }
  }
  // The fed shapes show it as well.
  const CompileOptions plain = OptionsFor({{.type = "mse", .output = "y", .target = "t"}}, 1, {4});
  Session session(std::make_shared<const Plan>(Compile(model, plain)),
                  {.source = std::make_shared<CompilingSource>(model, plain), .executor = {}});
  for (size_t i = 0; i < batches.size(); ++i)
    EXPECT_NEAR(session.Step(Views(batches[i])).loss, losses[i], 1e-5 * losses[i]) << "step " << i;
}

// With a limit at which a larger batch would be placed in another way: the parameters stay where they are.
TEST(Extend, KeepsStagesThatTheCompilerHasChosen) {
  std::mt19937 random(12);
  constexpr int64_t kWide = 192, kBatch = 256;
  std::string weights, body, last = "x";
  for (int layer = 0; layer < 5; ++layer) {
    const std::string n = std::to_string(layer);
    weights += (layer > 0 ? ", " : "") + Weights(random, "w" + n, {kWide, kWide}, 0.12F);
    body += " [m" + n + "] m" + n + " = MatMul(" + last + ", w" + n + ")\n [h" + n + "] h" + n + " = Relu(m" + n + ")\n";
    last = "h" + n;
  }
  const Model model = ModelOf("net (float[N, 192] x) => (float[N, 192] h4) <" + weights + "> {\n" + body + "}");
  CompileOptions options = OptionsFor({{.type = "mse", .output = "h4", .target = "t"}}, 2, {kBatch});
  options.recipe.fetch_gradients = options.recipe.fetch_outputs = false;
  options.recipe.place_auto = true;
  CompileOptions plain = options;
  plain.recipe.place_auto = false;
  plain.recipe.devices = 1;
  std::vector<Batch> batches;
  for (int64_t size : {kBatch, int64_t{288}, int64_t{64}, kBatch, int64_t{500}})
    batches.push_back({{"x", Random(random, {size, kWide})}, {"t", Random(random, {size, kWide})}});
  int others = 0;
  for (const int64_t kib : {3125, 2600, 2000}) {
    options.recipe.memory_limit = kib << 10;
    Session session(std::make_shared<const Plan>(Compile(model, options)),
                    {.source = std::make_shared<CompilingSource>(model, options), .executor = {}});
    Session one(std::make_shared<const Plan>(Compile(model, plain)),
                {.source = std::make_shared<CompilingSource>(model, plain), .executor = {}});
    for (const Batch& batch : batches) {
      const double loss = session.Step(Views(batch)).loss, want = one.Step(Views(batch)).loss;
      EXPECT_NEAR(loss, want, 1e-4 * want) << kib << " KiB, batch " << batch.at("x").shape()[0];
    }
    CompileOptions larger = options;
    larger.entries.front().batch = 500;
    others += !KeepsState(Compile(model, larger), session.plan());
    // The plan says where its nodes are, also to those who have read it from a file.
    Plan more = AddEntry(model, options, session.plan(), {EntryKind::kEval, 7});
    EXPECT_TRUE(KeepsState(more, session.plan()));
    more.properties["stages"] = "9 m0\n";
    EXPECT_THROW(AddEntry(model, options, more, {EntryKind::kEval, 8}), Error);
    more.properties.erase("stages");
    EXPECT_THROW(AddEntry(model, options, more, {EntryKind::kEval, 8}), Error);
  }
  EXPECT_GT(others, 0) << "no limit places a larger batch in another way, so this test shows nothing";
}

TEST(Extends, DistinguishesExtendedPlansFromOthers) {
  std::mt19937 random(11);
  const Model model = Net(random, 1);
  const CompileOptions options = OptionsOf({}, {4});
  const Plan plan = Compile(model, options);
  const Plan more = AddEntry(model, options, plan, {EntryKind::kStep, 7});
  EXPECT_TRUE(Extends(plan, plan));
  EXPECT_TRUE(Extends(more, plan));
  EXPECT_FALSE(Extends(plan, more));
  EXPECT_FALSE(Extends(Compile(model, options), plan)) << "equal is not the same";
  const auto changed = [&](auto change) {
    Plan other = more;
    change(other);
    return Extends(other, plan);
  };
  EXPECT_TRUE(changed([](Plan& p) { p.programs.Mutable(1).transient_bytes += 64; }));
  EXPECT_FALSE(changed([](Plan& p) { p.programs.Mutable(0).transient_bytes += 64; }));
  EXPECT_FALSE(changed([](Plan& p) { p.entries[0].fetches[0].buffer = 0; }));
  EXPECT_FALSE(changed([](Plan& p) { p.state[0].offset += 64; }));
  EXPECT_FALSE(changed([](Plan& p) { p.constants[0].value = p.constants[0].value.Clone(); }));
  EXPECT_FALSE(changed([](Plan& p) { p.constants.back().offset = 0; }));
  EXPECT_FALSE(changed([](Plan& p) { p.places[0].constants_bytes = 0; }));
  EXPECT_FALSE(changed([](Plan& p) { p.step.bytes += 64; }));
  EXPECT_FALSE(changed([](Plan& p) { p.targets[0].threads += 1; }));
  EXPECT_FALSE(changed([](Plan& p) { p.places.emplace_back(); }));
  EXPECT_EQ(plan.programs[0].transient_bytes, more.programs[0].transient_bytes) << "a change of a copy is the copy's own";
}

}  // namespace
}  // namespace gradloom
