// A stop between two batches of an evaluation ends the training as if that evaluation had not begun; the next trainer begins with it.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "runtime/data/dataset.h"
#include "runtime/session/session.h"
#include "runtime/session/session_copy.h"
#include "runtime/session/trainer.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

constexpr int64_t kRows = 22, kBatch = 4;

// What a trainer reports except times, and the state at each save.
class Listener : public TrainerObserver {
 public:
  void OnStep(const StepReport& step) override { Add("step", step.result.step, {step.result.loss, step.result.lr}); }
  void OnEvaluation(const EvaluationReport& of) override {
    std::vector<double> numbers{of.epochs_done, of.best ? 1.0 : 0.0, of.lr};
    for (const auto& [name, value] : of.values) numbers.push_back(value);
    Add("evaluation", of.step, numbers);
  }
  void OnEpoch(const EpochReport& epoch) override {
    Add("epoch", epoch.step, {epoch.train_loss, epoch.lr, epoch.eval.empty() ? -1 : epoch.eval.at("loss")});
  }
  void OnSave(SaveReason reason) override { saves.push_back(reason); }

  std::vector<std::string> lines;
  std::vector<SaveReason> saves;

 private:
  void Add(const std::string& what, int64_t step, const std::vector<double>& numbers) {
    lines.push_back(what + " " + std::to_string(step) + std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * 8));
  }
};

std::shared_ptr<const Plan> CompiledNet() {
  std::mt19937 random(2);
  const std::string graph = "g (float[N, 4] x) => (float[N, 3] z) <" + Weights(random, "w", Shape{4, 5}) + ", " +
                            Weights(random, "v", Shape{5, 3}) + "> { h = MatMul (x, w)  s = Tanh (h)  z = MatMul (s, v) }";
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "y"}}, 1, {kBatch, kRows % kBatch});
  options.recipe.accumulate = 2;
  for (const int64_t batch : {kBatch, kRows % kBatch}) options.entries.push_back({EntryKind::kEval, batch});
  return std::make_shared<const Plan>(Compile(ModelOf(graph), options));
}

Dataset RandomRows() {
  std::mt19937 random(3);
  return Dataset({{"x", Random(random, Shape{kRows, 4})}, {"y", Classes(random, kRows, 3)}});
}

class Interrupted : public testing::TestWithParam<std::string> {
 protected:
  // Trains on, in a session and a trainer of their own, from `state` and until the stop is asked for this often; 0: to the end. Returns the
  // trainer's state.
  std::string Train(const std::shared_ptr<const Plan>& plan, std::unique_ptr<Session>& session, const std::string& state, int asked,
                    Listener& listener) {
    auto own = std::make_unique<Session>(plan);
    if (session != nullptr) CopyState(*session, *own);
    session = std::move(own);
    TrainerOptions options{.epochs = 3, .batch = kBatch, .evaluate = Interval::Parse(GetParam(), "interval")};
    options.plateau = PlateauOptions{.factor = 0.5, .patience = 0, .threshold = 0.5};
    options.stops_evaluations = true;
    int count = 0;
    options.stop_requested = [&count, asked] { return ++count == asked; };
    const Dataset data = RandomRows();
    Trainer trainer(*session, data, data, std::move(options), listener);
    if (!state.empty()) trainer.set_state(state);
    const StopReason reason = trainer.Run();
    EXPECT_EQ(reason == StopReason::kRequested, listener.saves.back() == SaveReason::kStopRequested);
    return trainer.state();
  }
};

TEST_P(Interrupted, AtEachBatch) {
  const std::shared_ptr<const Plan> plan = CompiledNet();
  Listener want;
  std::unique_ptr<Session> whole;
  const std::string state = Train(plan, whole, "", 0, want);
  int interrupted = 0;
  for (int asked = 1; asked < 200; ++asked) {
    SCOPED_TRACE("stopped when asked for the " + std::to_string(asked) + "th time");
    Listener got;
    std::unique_ptr<Session> session;
    const std::string left = Train(plan, session, "", asked, got);
    if (got.saves.back() == SaveReason::kEnd) break;
    interrupted += left.find("\"evaluation_due\":true") != std::string::npos ? 1 : 0;
    EXPECT_EQ(Train(plan, session, left, 0, got), state);
    EXPECT_EQ(got.lines, want.lines);
    for (const StateTensor& tensor : plan->state)
      ExpectSameBits({{tensor.name, whole->Get(tensor.name)}}, {{tensor.name, session->Get(tensor.name)}});
  }
  EXPECT_GE(interrupted, 3 * 5);  // of each evaluation, before each batch but the first
}

INSTANTIATE_TEST_SUITE_P(Trainer, Interrupted, testing::Values("1ep", "2"),
                         [](const auto& of) { return of.param == "1ep" ? "Epochs" : "Updates"; });

}  // namespace
}  // namespace gradloom
