// A run that is saved and resumed in a new session gives the same bits as one that was never interrupted: parameters, running statistics,
// optimizer state, accumulated gradients, losses. The model has batch normalization and dropout, the data are shuffled, and the last batch
// of an epoch is smaller.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/base/philox.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/data/batches.h"
#include "runtime/data/dataset.h"
#include "tests/base/temporary_folder.h"
#include "tests/checkpoint/sample_session.h"

namespace gradloom {
namespace {

constexpr int64_t kRows = 100, kBatch = 16;  // seven batches per epoch, the last one has four rows
constexpr int64_t kSeed = 5;
constexpr int kBatches = 20;

Dataset RandomDigits() {
  Tensor images(DType::kFloat32, {kRows, 1, 8, 8}), labels(DType::kInt64, {kRows});
  std::span<float> pixels = images.as<float>();
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(Mix64(i) % 17) / 16;
  std::span<int64_t> classes = labels.as<int64_t>();
  for (size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<int64_t>(Mix64(i + 99) % 10);
  return Dataset({{"image", images}, {"label", labels}});
}

std::shared_ptr<const Plan> CompileDigits(const Recipe& recipe, const std::vector<std::string>& disabled) {
  static const Model model = Model::Load("models/digits_cnn.onnx");
  CompileOptions options;
  options.recipe = recipe;
  options.control.disabled = disabled;
  options.entries = {{EntryKind::kStep, kBatch}, {EntryKind::kStep, kRows % kBatch}};
  return std::make_shared<const Plan>(Compile(model, options));
}

// A run within one process: all its objects are created anew.
class TrainedRun {
 public:
  // `disabled`: passes of the compiler.
  explicit TrainedRun(const Recipe& recipe, const std::vector<std::string>& disabled = {})
      : plan_(CompileDigits(recipe, disabled)), data_(RandomDigits()), session_(plan_, {.seed = kSeed}) {
    session_.set_epoch((kRows + kBatch - 1) / kBatch);
    state_.cursor = {0, 0, kBatch, kRows};
  }

  void Train(int batches) {
    for (DataCursor& at = state_.cursor; batches > 0; --batches) {
      if (order_.empty()) {
        order_ = ShuffledRows(kRows, static_cast<uint64_t>(session_.seed()), static_cast<uint64_t>(at.epoch));
        batches_.emplace(data_, order_, kBatch);
      }
      losses_.push_back(session_.Step(batches_->Get(at.batch)).loss);
      if (++at.batch < batches_->count()) continue;
      ++at.epoch, at.batch = 0;
      order_.clear();
    }
  }

  void Save(const std::string& folder) { CheckpointFolder(folder, IdentityOf(*plan_)).Save(session_, state_); }

  void Load(const std::string& folder, bool any_plan = false) {
    const FoundCheckpoint found = FindNewestCheckpoint(folder);
    ASSERT_TRUE(found.checkpoint);
    found.checkpoint->Restore(session_, IdentityOf(*plan_), any_plan);
    state_.cursor = found.checkpoint->manifest().cursor;
  }

  Session& session() { return session_; }
  const Plan& plan() const { return *plan_; }

  // The complete state of a run: tensors, counters, and the losses of the last batches.
  std::map<std::string, std::string> Bits(int losses) const {
    auto bits = BitsOf(session_);
    bits["step"] = std::to_string(session_.step());
    bits["batch"] = std::to_string(session_.batch());
    for (int i = 1; i <= losses; ++i) {
      const double loss = losses_[losses_.size() - static_cast<size_t>(i)];
      bits["loss " + std::to_string(kBatches - i)] = std::string(reinterpret_cast<const char*>(&loss), sizeof loss);
    }
    return bits;
  }

 private:
  std::shared_ptr<const Plan> plan_;
  Dataset data_;
  Session session_;
  RunState state_;
  std::vector<int64_t> order_;
  std::optional<Batches> batches_;
  std::vector<double> losses_;
};

struct ResumeCase {
  std::string name;
  std::function<void(Recipe&)> change;
};

Recipe RecipeOf(const ResumeCase& resume) {
  Recipe recipe;
  recipe.losses = {{.type = "cross_entropy", .target = "label"}};
  recipe.optimizer.type = resume.name.substr(0, resume.name.find('_'));
  recipe.optimizer.lr = 0.05;
  recipe.schedule = {"cosine", 0.05, {{"total_steps", int64_t{kBatches}}, {"warmup_steps", int64_t{4}}}};
  recipe.threads = 2;
  if (resume.change) resume.change(recipe);
  return recipe;
}

class ResumeTest : public testing::TestWithParam<ResumeCase> {};

// After ten batches, which are in the middle of an update of two or of four batches.
TEST_P(ResumeTest, GivesTheSameBits) {
  const Recipe recipe = RecipeOf(GetParam());
  TrainedRun unbroken(recipe);
  unbroken.Train(kBatches);
  const TemporaryFolder folder;
  {
    TrainedRun first(recipe);
    first.Train(10);
    first.Save(folder.path());
  }
  TrainedRun second(recipe);
  second.Load(folder.path());
  second.Train(kBatches - 10);
  EXPECT_EQ(second.Bits(10), unbroken.Bits(10));
}

const ResumeCase kCases[] = {
    {"sgd", {}},
    {"sgd_in_the_middle_of_accumulation", [](Recipe& r) { r.accumulate = 4; }},
    {"momentum_with_decay_and_clipping",
     [](Recipe& r) { r.optimizer.momentum = 0.9, r.optimizer.weight_decay = 0.01, r.optimizer.clip_norm = 0.5; }},
    {"nesterov", [](Recipe& r) { r.optimizer.momentum = 0.9; }},
    {"adam_amsgrad", [](Recipe& r) { r.optimizer.amsgrad = true; }},
    {"adamw_in_the_middle_of_accumulation", [](Recipe& r) { r.optimizer.weight_decay = 0.1, r.accumulate = 2; }},
    {"adam_with_one_cycle",
     [](Recipe& r) {
       r.schedule = {"one_cycle", 0.01, {{"total_steps", int64_t{kBatches}}}};
     }},
    {"rmsprop_centered", [](Recipe& r) { r.optimizer.momentum = 0.9, r.optimizer.centered = true, r.optimizer.lr = 0.001; }},
    {"adagrad", [](Recipe& r) { r.optimizer.lr_decay = 0.1; }},
    {"adadelta", {}},
    {"adamax", {}},
    {"nadam", {}},
    {"radam", [](Recipe& r) { r.optimizer.beta2 = 0.9; }},
    {"lion", {}},
    {"lamb", {}},
    {"adam_in_bfloat16", [](Recipe& r) { r.precision = Precision::kBfloat16; }},
};

INSTANTIATE_TEST_SUITE_P(Optimizers, ResumeTest, testing::ValuesIn(kCases), [](const auto& info) { return info.param.name; });

TEST(ResumeEverywhereTest, GivesTheSameBits) {
  const Recipe recipe = RecipeOf({"adam_everywhere", [](Recipe& r) { r.accumulate = 2; }});
  TrainedRun unbroken(recipe);
  unbroken.Train(kBatches);
  // Resumes once after each batch, in a chain of that many processes.
  const TemporaryFolder folder;
  TrainedRun(recipe).Save(folder.path());
  std::map<std::string, std::string> bits;
  for (int batch = 0; batch < kBatches; ++batch) {
    TrainedRun run(recipe);
    run.Load(folder.path());
    run.Train(1);
    run.Save(folder.path());
    bits = run.Bits(1);
  }
  EXPECT_EQ(bits, unbroken.Bits(1));
}

// The 16-bit copies of weights are in no file: a plan that keeps them continues a run of one that does not, and the reverse.
TEST(ResumeInMixedPrecision, WithAndWithoutCopiesOfWeights) {
  const Recipe recipe = RecipeOf({"adam_copies", [](Recipe& r) { r.precision = Precision::kBfloat16; }});
  const std::vector<std::string> passes[] = {{}, {"keep_weight_copies"}};
  TrainedRun unbroken(recipe);
  unbroken.Train(kBatches);
  std::map<std::string, std::string> whole = BitsOf(unbroken.session());
  int copies = 0;
  for (const StateTensor& state : unbroken.plan().state) copies += state.derived() && whole.erase(state.name) == 1 ? 1 : 0;
  EXPECT_GT(copies, 0);
  for (int first : {0, 1}) {
    const TemporaryFolder folder;
    TrainedRun saved(recipe, passes[first]), resumed(recipe, passes[1 - first]);
    saved.Train(10);
    saved.Save(folder.path());
    const FoundCheckpoint found = FindNewestCheckpoint(folder.path());
    for (const StateTensor& state : saved.plan().state) EXPECT_EQ(found.checkpoint->types().contains(state.name), !state.derived());
    resumed.Load(folder.path(), true);
    resumed.Train(kBatches - 10);
    std::map<std::string, std::string> bits = BitsOf(resumed.session());
    for (const StateTensor& state : resumed.plan().state) {
      if (state.derived()) bits.erase(state.name);
    }
    EXPECT_EQ(bits, whole);
  }
}

// Shows that the tests above can fail: changing any part of what is saved changes the bits.
TEST(ResumeNeedsTest, EverySavedPart) {
  const Recipe recipe = RecipeOf({"adam_needs", [](Recipe& r) { r.accumulate = 4; }});
  TrainedRun unbroken(recipe);
  unbroken.Train(kBatches);
  const TemporaryFolder folder;
  TrainedRun first(recipe);
  first.Train(10);
  first.Save(folder.path());
  const auto resumed = [&](const std::function<void(TrainedRun&)>& damage) {
    TrainedRun run(recipe);
    run.Load(folder.path());
    damage(run);
    run.Train(kBatches - 10);
    return BitsOf(run.session());
  };
  const auto whole = BitsOf(unbroken.session());
  ASSERT_EQ(resumed([](TrainedRun&) {}), whole);
  // Dropout depends on the batch counter; the schedule and Adam's correction depend on the step counter.
  EXPECT_NE(resumed([](TrainedRun& run) { run.session().set_position(run.session().step(), 13); }), whole);
  EXPECT_NE(resumed([](TrainedRun& run) { run.session().set_position(4, run.session().batch()); }), whole);
  std::map<StateKind, int> kinds;
  for (size_t i = 0; i < first.plan().state.size(); ++i) {
    const StateTensor& state = first.plan().state[i];
    ++kinds[state.kind];
    Tensor value = first.session().Get(state.name);
    if (state.dtype != DType::kFloat32 || value.elements() == 0) continue;
    if (kinds[state.kind] > 2) continue;  // two of each kind
    value = value.Clone();
    value.as<float>()[0] += 1;
    EXPECT_NE(resumed([&](TrainedRun& run) { run.session().Set(state.name, value.view()); }), whole) << state.name;
  }
  EXPECT_EQ(kinds.size(), 4u) << "parameters, optimizer state, statistics, accumulators";
}

}  // namespace
}  // namespace gradloom
