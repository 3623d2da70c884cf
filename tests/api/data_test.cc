// Tests of the C++ interface as programs use it: data sets, a trainer with callbacks, DLPack, devices, the exported model.
#include <gradloom/gradloom.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/api/housing.h"

// The struct of dlpack.h.
struct DLManagedTensor {
  struct {
    void* data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
  } dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor*);
};

namespace {

TEST(Dataset, ReadsSeveralFilesWithoutExtension) {
  std::ifstream table("models/data/boston.csv");
  const std::string folder = ::testing::TempDir() + "shards";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  std::string header;
  std::getline(table, header);
  for (const char* name : {"/part-0", "/part-1"}) {
    std::ofstream part(folder + name);
    part << header << "\n";
    std::string line;
    for (int row = 0; row < 253 && std::getline(table, line); ++row) part << line << "\n";
  }
  const gradloom::Settings columns = {{"features", "CRIM..LSTAT"}, {"target", "MEDV"}};
  const gradloom::Dataset whole("models/data/boston.csv", Plain(), {.columns = columns});
  const gradloom::Dataset parts(folder + "/part-?", Plain(), {.columns = columns, .format = "csv"});
  EXPECT_EQ(parts.rows(), 506);
  EXPECT_EQ(whole.Notes(), "");
  // Columns that are guessed, and what the evaluation data shares.
  const gradloom::Dataset guessed("models/data/boston.csv", Plain(), {.eval_split = "20%"});
  EXPECT_EQ(guessed.Notes(), "columns features=CRIM..LSTAT  target=MEDV   [guessed: set --map to change]\n");
  EXPECT_EQ(guessed.Eval().Notes(), guessed.Notes());
  const auto target = [](const gradloom::Dataset& data) {
    std::vector<float> values;
    for (const gradloom::Batch& batch : data.Batches({.size = 506, .in_order = true})) {
      const auto span = batch["target"].as<float>();
      values.insert(values.end(), span.begin(), span.end());
    }
    return values;
  };
  EXPECT_EQ(target(parts), target(whole));
  const auto refusal = [&](const std::string& path, const std::string& format) {
    try {
      gradloom::Dataset(path, Plain(), {.columns = columns, .format = format});
    } catch (const gradloom::Error& error) {
      return error.name() + ": " + error.message();
    }
    return std::string("it was read");
  };
  // The format must be given, and must be a known one.
  EXPECT_EQ(refusal(folder + "/part-?", "").substr(0, 7), "E-DATA:");
  EXPECT_EQ(refusal(folder + "/part-?", "xls"), "E-CONFIG: unknown data format 'xls'");
  EXPECT_EQ(refusal(folder + "/other-*", "csv").substr(0, 7), "E-DATA:");
}

TEST(Trainer, CallsCallbacksAndStopsWhenTheyAsk) {
  const gradloom::Dataset data(
      "models/data/boston.csv",
      {.columns = {{"features", "CRIM..LSTAT"}, {"target", "MEDV"}}, .transforms = {{"features", "standardize"}}, .eval_split = "20%"});
  data.Read(Plain());
  EXPECT_EQ(data.rows() + data.Eval().rows(), 506);
  gradloom::Trainer trainer(Plain(), {.train = data, .eval = data.Eval(), .epochs = 5, .seed = 1, .metrics = {"rmse(value, target)"}});
  int steps = 0, evaluations = 0;
  std::vector<double> losses;
  const auto result = trainer.Fit({
      .on_step = [&](const gradloom::StepResult& r) { return r.step == ++steps; },
      .on_evaluation =
          [&](const gradloom::Evaluation& e) {
            ++evaluations;
            EXPECT_NEAR(std::sqrt(e.values.at("loss")), e.values.at("rmse"), 1e-3 * e.values.at("rmse"));
            return true;
          },
      .on_epoch =
          [&](const gradloom::Epoch& e) {
            losses.push_back(e.train_loss);
            // Within a callback the session may be read but not stepped.
            EXPECT_EQ(trainer.session().step(), e.step);
            EXPECT_THROW(trainer.session().Step(Samples(1).feeds()), gradloom::Error);
            return true;
          },
  });
  EXPECT_EQ(evaluations, 5);
  ASSERT_EQ(losses.size(), 5u);
  EXPECT_LT(losses.back(), losses.front());
  EXPECT_EQ(result.train_loss, losses.back());
  EXPECT_EQ(result.step, steps);
  EXPECT_FALSE(result.stopped_by_callback);

  gradloom::Trainer stopped(Plain(), {.train = data, .epochs = 5});
  EXPECT_TRUE(stopped.Fit({.on_step = [](const gradloom::StepResult& r) { return r.step < 3; }}).stopped_by_callback);
  EXPECT_EQ(stopped.session().step(), 3);
  gradloom::Trainer throws(Plain(), {.train = data});
  EXPECT_THROW(throws.Fit({.on_step = [](const gradloom::StepResult&) -> bool { throw std::out_of_range("mine"); }}), std::out_of_range);
  // No callback is called after one that has thrown, though the step ends an epoch.
  gradloom::Trainer last(Plain(), {.train = data, .batch = data.rows()});
  EXPECT_THROW(last.Fit({.on_step = [](const gradloom::StepResult&) -> bool { throw std::out_of_range("first"); },
                         .on_epoch = [](const gradloom::Epoch&) -> bool { throw std::logic_error("second"); }}),
               std::out_of_range);
}

TEST(Trainer, TakesTheLargestNumbers) {
  const gradloom::Dataset data("models/data/boston.csv", Plain(), {.columns = {{"features", "CRIM..LSTAT"}, {"target", "MEDV"}}});
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const auto& [epochs, updates] : {std::pair{kMost, int64_t{0}}, std::pair{int64_t{1}, kMost}}) {
    gradloom::Trainer trainer(Plain(), {.train = data, .epochs = epochs, .updates = updates});
    EXPECT_TRUE(trainer.Fit({.on_step = [](const gradloom::StepResult& r) { return r.step < 20; }}).stopped_by_callback);
    EXPECT_EQ(trainer.session().step(), 20);
  }
  int64_t rows = 0;
  for (const gradloom::Batch& batch : data.Batches({.size = kMost})) rows += batch["target"].shape()[0];
  EXPECT_EQ(rows, 506);
}

TEST(Trainer, ContinuesFromACheckpoint) {
  const gradloom::Dataset data("models/data/boston.csv", Plain(), {.columns = {{"features", "CRIM..LSTAT"}, {"target", "MEDV"}}});
  const gradloom::TrainerConfig config{.train = data, .epochs = 3, .seed = 5};
  gradloom::Trainer whole(Plain(), config);
  const auto expected = whole.Fit();
  // Stopped within the second epoch.
  gradloom::Trainer first(Plain(), config);
  first.Fit({.on_step = [](const gradloom::StepResult& r) { return r.step < 20; }});
  first.session().SaveCheckpoint(TemporaryFile("fit.ckpt"));
  gradloom::Trainer second(gradloom::Session(Plain(), gradloom::Checkpoint::Load(TemporaryFile("fit.ckpt"))), config);
  EXPECT_EQ(second.session().step(), 20);
  EXPECT_EQ(second.Fit().step, expected.step);
  EXPECT_EQ(second.session().FlatParameters(), whole.session().FlatParameters());
}

TEST(Trainer, TakesTheRowsInOrder) {
  const gradloom::Dataset data("models/data/boston.csv", Plain(), {.columns = {{"features", "CRIM..LSTAT"}, {"target", "MEDV"}}});
  gradloom::Trainer trainer(Plain(), {.train = data, .epochs = 2, .seed = 5, .in_order = true});
  trainer.Fit();
  gradloom::Session session(Plain(), {.seed = 5});
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const gradloom::Batch& batch : data.Batches({.size = 32, .in_order = true})) session.Step(batch);
  }
  EXPECT_EQ(trainer.session().FlatParameters(), session.FlatParameters());
  gradloom::Trainer shuffled(Plain(), {.train = data, .epochs = 2, .seed = 5});
  shuffled.Fit();
  EXPECT_NE(shuffled.session().FlatParameters(), session.FlatParameters());
}

TEST(Trainer, ReducesTheLearningRateOnAPlateau) {
  const gradloom::Dataset data("models/data/boston.csv",
                               {.columns = {{"features", "CRIM..LSTAT"}, {"target", "MEDV"}}, .eval_split = "20%"});
  data.Read(Plain());
  // No progress is enough with such a threshold, so every second evaluation after the first reduces the rate, down to the bound.
  const gradloom::Plateau plateau{.factor = 0.5, .patience = 1, .threshold = 1, .min_lr = 3e-3};
  gradloom::Trainer trainer(Plain(), {.train = data, .eval = data.Eval(), .epochs = 8, .plateau = plateau});
  std::vector<double> rates;
  trainer.Fit({.on_epoch = [&](const gradloom::Epoch&) {
    rates.push_back(trainer.session().learning_rate());
    return true;
  }});
  EXPECT_EQ(rates.front(), 0.01);
  EXPECT_EQ(trainer.session().learning_rate(), 3e-3);
  std::vector<double> distinct = rates;
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  EXPECT_EQ(distinct, (std::vector<double>{0.01, 0.005, 3e-3}));
  for (const gradloom::Plateau& bad : {gradloom::Plateau{.factor = 1}, gradloom::Plateau{.factor = 0}, gradloom::Plateau{.factor = -0.1},
                                       gradloom::Plateau{.patience = -1}, gradloom::Plateau{.threshold = std::nan("")}}) {
    EXPECT_THROW(gradloom::Trainer(Plain(), {.train = data, .eval = data.Eval(), .plateau = bad}).Fit(), gradloom::Error);
  }
  EXPECT_THROW(gradloom::Trainer(Plain(), {.train = data, .plateau = plateau}).Fit(), gradloom::Error);
  // A plateau begins at the plan's rate again.
  rates.clear();
  gradloom::Trainer again(std::move(trainer.session()), {.train = data, .eval = data.Eval(), .epochs = 9, .plateau = plateau});
  again.Fit({.on_step = [&](const gradloom::StepResult& r) { return rates.push_back(r.lr), true; }});
  EXPECT_EQ(rates.front(), 0.01);
}

TEST(Trainer, RefusesNoEpochsAndEmptyBatches) {
  const gradloom::Dataset data("models/data/boston.csv", {.columns = {{"features", "CRIM..LSTAT"}, {"target", "MEDV"}}});
  EXPECT_THROW(gradloom::Trainer(Plain(), {.train = data, .epochs = 0}).Fit(), gradloom::Error);
  EXPECT_THROW(gradloom::Trainer(Plain(), {.train = data, .batch = 0}).Fit(), gradloom::Error);
  EXPECT_EQ(gradloom::Trainer(Plain(), {.train = data, .epochs = 0, .updates = 2}).Fit().step, 2);
}

// What an evaluation lacks is found before the first step.
TEST(Trainer, ChecksEvaluationsBeforeItTrains) {
  const gradloom::Dataset data("models/data/boston.csv",
                               {.columns = {{"features", "CRIM..LSTAT"}, {"target", "MEDV"}}, .eval_split = "20%"});
  data.Read(Plain());
  const std::vector<float> features(13 * 4);
  const gradloom::Dataset no_target(gradloom::Feeds{{"features", TensorView(features.data(), {4, 13})}});
  const gradloom::TrainerConfig wrong[] = {{.train = data, .eval = data.Eval(), .metrics = {"mae(nope, target)"}},
                                           {.train = data, .eval = data.Eval(), .metrics = {"mae(value, nope)"}},
                                           {.train = data, .eval = data.Eval(), .metrics = {"mae(value, target)"}, .watch = "eval/rmse"},
                                           {.train = data, .eval = no_target}};
  for (const gradloom::TrainerConfig& config : wrong) {
    gradloom::Trainer trainer(Plain(), config);
    EXPECT_THROW(trainer.Fit(), gradloom::Error);
    EXPECT_EQ(trainer.session().step(), 0);
  }
  gradloom::Trainer right(Plain(), {.train = data, .eval = data.Eval(), .metrics = {"mae(value, target)"}, .watch = "eval/mae"});
  EXPECT_NO_THROW(right.Fit());
}

// The program's own steps count towards the next update.
TEST(Trainer, ContinuesAnUpdateOfTheProgram) {
  const Samples samples(3);
  gradloom::Session session(CompileHousing({.settings = {{"train.accumulate", "4"}}}));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(session.Step(samples.feeds()).updated);
  const gradloom::Dataset data(samples.feeds());
  gradloom::Trainer trainer(std::move(session), {.train = data, .epochs = 10, .batch = 8});
  std::vector<bool> updated;
  trainer.Fit({.on_step = [&](const gradloom::StepResult& r) { return updated.push_back(r.updated), updated.size() < 5; }});
  EXPECT_EQ(updated, (std::vector<bool>{true, false, false, false, true}));
}

TEST(Dataset, HasNoBatchesWithoutRows) {
  const gradloom::Dataset none(gradloom::Feeds{{"features", TensorView(static_cast<const float*>(nullptr), {0, 13})}});
  int64_t batches = 0;
  for (const gradloom::Batch& batch : none.Batches()) batches += batch.index() + 1;
  EXPECT_EQ(batches, 0);
}

TEST(Trainer, LeavesOutBatchesThatAreNotFinite) {
  const std::string path = TemporaryFile("nan.csv");
  {
    std::ofstream table(path);
    table << "f0,f1,f2,f3,f4,f5,f6,f7,f8,f9,f10,f11,f12,target\n";
    for (int row = 0; row < 96; ++row) {
      for (int column = 0; column < 13; ++column) table << (row * 13 + column) % 7 << ",";
      table << (row == 40 ? "nan" : "1") << "\n";
    }
  }
  const gradloom::Dataset data(path, Plain(), {.columns = {{"features", "f0..f12"}, {"target", "target"}}});
  try {
    gradloom::Trainer(Plain(), {.train = data, .epochs = 1}).Fit();
    FAIL() << "a loss that is not finite was taken";
  } catch (const gradloom::Error& error) {
    EXPECT_EQ(error.code(), GRADLOOM_E_DIVERGED) << error.what();
  }
  gradloom::Trainer trainer(Plain(), {.train = data, .epochs = 2, .skip_non_finite = true});
  trainer.Fit();
  for (const float value : trainer.session().FlatParameters()) ASSERT_TRUE(std::isfinite(value));
}

// An update that has no batch left changes nothing, though weight decay and momentum need no gradients.
TEST(Trainer, LeavesOutUpdatesWithoutBatches) {
  const auto plan = CompileHousing(
      {.optimizer = gradloom::Sgd{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.5}, .batch = 16, .settings = {{"train.accumulate", "2"}}});
  const std::vector<float> features(64 * 13, 1), targets(64, std::nanf(""));
  const gradloom::Dataset data(
      gradloom::Feeds{{"features", TensorView(features.data(), {64, 13})}, {"target", TensorView(targets.data(), {64, 1})}});
  gradloom::Trainer trainer(plan, {.train = data, .epochs = 2, .batch = 16, .skip_non_finite = true});
  const std::vector<float> before = trainer.session().FlatParameters();
  trainer.Fit();
  EXPECT_EQ(trainer.session().FlatParameters(), before);
  EXPECT_EQ(trainer.session().step(), 0);
}

// A mean over no label is 0/0 and trains nothing: the run goes on, and the means over batches leave that batch out.
TEST(Trainer, GoesOnWhereAllLabelsAreIgnored) {
  const auto model = ModelOfText("ignored", "g (float[N, 2] x) => (float[N, 2] s) <float[2, 2] w = {1, 0, 0, 1}> { s = MatMul (x, w) }");
  const std::vector<float> x = {1, 0, 0, 1, 1, 0, 0, 1}, halves(8, 0.5f);
  const std::vector<int64_t> some = {0, -100, -100, 1}, none(4, -100);
  const auto data = [&](const std::vector<int64_t>& y) {
    return gradloom::Dataset(
        gradloom::Feeds{{"x", TensorView(x.data(), {4, 2})}, {"y", TensorView(y.data(), {4})}, {"t", TensorView(halves.data(), {4, 2})}});
  };
  const gradloom::Loss classes = gradloom::Loss::CrossEntropy("s", "y");
  const gradloom::Loss both = classes + gradloom::Loss::Mse("s", "t");
  const double of_row = std::log1p(std::exp(-1.0));
  struct Case {
    std::string devices;
    int64_t batch;
    std::string accumulate;
  };
  for (const auto& [devices, batch, accumulate] :
       {Case{"cpu", 1, "1"}, Case{"cpu", 1, "2"}, Case{"cpu:2", 2, "1"}, Case{"cpu:2", 2, "2"}}) {
    SCOPED_TRACE(devices + " " + accumulate);
    const auto fit = [&](const gradloom::Loss& loss, double lr, const std::vector<int64_t>& y, std::map<std::string, double>& evaluated) {
      const auto plan = gradloom::Compile(model, {.loss = loss,
                                                  .optimizer = gradloom::Sgd{.lr = lr},
                                                  .batch = batch,
                                                  .devices = devices,
                                                  .settings = {{"train.accumulate", accumulate}}});
      gradloom::Trainer trainer(plan, {.train = data(y), .eval = data(y), .epochs = 8, .batch = batch});
      const auto result = trainer.Fit({.on_evaluation = [&](const gradloom::Evaluation& e) {
        evaluated = e.values;
        return true;
      }});
      EXPECT_EQ(trainer.session().FlatParameters(), (std::vector<float>{1, 0, 0, 1}));
      return result.train_loss;
    };
    std::map<std::string, double> evaluated;
    EXPECT_TRUE(std::isnan(fit(classes, 1, none, evaluated)));
    EXPECT_TRUE(std::isnan(evaluated.at("loss")));
    EXPECT_NEAR(fit(classes, 0, some, evaluated), of_row, 1e-6);
    EXPECT_NEAR(evaluated.at("loss"), of_row, 1e-6);
    const double train_loss = fit(both, 0, some, evaluated);
    EXPECT_NEAR(evaluated.at("loss/cross_entropy"), of_row, 1e-6);
    EXPECT_NEAR(evaluated.at("loss/mse"), 0.25, 1e-6);
    if (batch > 1) continue;
    // Of the batches of one row, half have both terms.
    EXPECT_NEAR(train_loss, of_row / 2 + 0.25, 1e-6);
    EXPECT_NEAR(evaluated.at("loss"), of_row / 2 + 0.25, 1e-6);
  }
}

// Classes that a table has by name, for the loss of the plan and for one that the model computes.
TEST(Dataset, NumbersNamedClasses) {
  const std::string path = ::testing::TempDir() + "named.csv";
  const auto label = [&](const gradloom::Plan& plan, const std::string& names, size_t row) {
    std::ofstream(path) << "a;b;kind\n1;0;" << names.substr(0, 3) << "\n0;1;" << names.substr(4, 3) << "\n1;0;" << names.substr(8, 3)
                        << "\n";
    const gradloom::Dataset data(path, plan);
    const auto batches = data.Batches({.size = 3, .in_order = true});
    return (*batches.begin())["y"].as<int64_t>()[row];
  };
  const std::string scores = "g (float[N, 2] x) => (float[N, 2] s) <float[2, 2] w = {1, 0, 0, 1}> { s = MatMul (x, w) }";
  const std::string loss =
      "g (float[N, 2] x, int64[N] y) => (float loss, float[N, 2] s) <float[2, 2] w = {1, 0, 0, 1}> "
      "{ s = MatMul (x, w)  loss = SoftmaxCrossEntropyLoss (s, y) }";
  for (const gradloom::Plan& plan :
       {CompiledWith(ModelOfText("scores", scores), "cross_entropy(s, y)"), CompiledWith(ModelOfText("computes", loss), "output(loss)")}) {
    EXPECT_EQ(label(plan, "yes no. yes", 0), 1);
    EXPECT_EQ(label(plan, "yes no. yes", 1), 0);
    try {
      label(plan, "yes no. who", 0);
      ADD_FAILURE() << "three classes for two scores";
    } catch (const gradloom::Error& error) {
      EXPECT_NE(std::string(error.what()).find("'who' is one name more than the model has classes, 2"), std::string::npos) << error.what();
    }
  }
}

// A prediction needs no target, even if the model itself computes its loss.
TEST(Session, PredictsWithoutTheTargetOfTheModelsLoss) {
  const auto model =
      ModelOfText("with_loss", R"(g (float[N, 2] x, float[N, 2] y) => (float loss, float[N, 2] s) <float[2, 2] w = {1, 2, 3, 4}>
{ s = MatMul (x, w)  d = Sub (s, y)  q = Mul (d, d)  loss = ReduceMean <keepdims = 0> (q) })");
  const gradloom::Plan plan = CompiledWith(model, "output(loss)");
  EXPECT_EQ(plan.Inputs(gradloom::EntryKind::kPredict).size(), 1u);
  EXPECT_EQ(plan.Inputs(gradloom::EntryKind::kTrain).size(), 2u);
  gradloom::Session session(plan);
  const std::vector<float> x = {1, 0, 0, 1};
  // Also for a batch size that is compiled when it occurs.
  for (const int64_t rows : {2, 1}) {
    session.Predict({{"x", TensorView(x.data(), {rows, 2})}});
    EXPECT_EQ(session.Output("s").as<float>()[1], 2);
  }
  // The loss needs the target, which an evaluation has.
  EXPECT_THROW(session.Output("loss"), gradloom::Error);
  session.Predict({{"x", TensorView(x.data(), {2, 2})}, {"y", TensorView(x.data(), {2, 2})}});
  session.Evaluate({{"x", TensorView(x.data(), {2, 2})}, {"y", TensorView(x.data(), {2, 2})}});
  EXPECT_EQ(session.Output("loss").as<float>()[0], (0 + 4 + 9 + 9) / 4.0f);
}

// An output that is an input, whose memory the caller may free or reuse after the run.
TEST(Session, OutputsThatAreInputsOutliveThem) {
  const auto model = ModelOfText("same", R"(g (float[N, 2] x) => (float[N, 2] same, float[N, 2] s) <float[2, 2] w = {1, 2, 3, 4}>
{ same = Identity (x)  s = MatMul (x, w) })");
  for (const char* devices : {"cpu", "cpu:2"}) {
    gradloom::CompileOptions options;
    options.loss = gradloom::Loss::Mse("s", "t");
    options.devices = devices;
    options.batch = 2;
    gradloom::Session session(gradloom::Compile(model, options));
    for (const float begin : {1.0f, 5.0f}) {
      std::vector<float> x = {begin, 2, 3, 4};
      const std::vector<float> kept = x;
      session.Predict({{"x", TensorView(x.data(), {2, 2})}});
      std::fill(x.begin(), x.end(), -1.0f);
      const auto same = session.Output("same").as<float>();
      EXPECT_EQ(std::vector<float>(same.begin(), same.end()), kept) << devices;
    }
  }
}

// Its memory may hold a part of what the failed run computed.
TEST(Session, HasNoOutputsAfterAFailedRun) {
  Sequence sequence;
  gradloom::Session session(CompiledWith(sequence.model, "cross_entropy(s, y, class_axis=-1)"));
  const gradloom::Feeds feeds = {{"x", TensorView(sequence.x.data(), {4, 3, 3})}, {"y", TensorView(sequence.y.data(), {4, 3})}};
  session.Evaluate(feeds);
  session.Output("s");
  sequence.y[0] = 99;
  EXPECT_THROW(session.Evaluate(feeds), gradloom::Error);
  EXPECT_THROW(session.Output("s"), gradloom::Error);
}

TEST(Session, SaysWhyThereIsNoOutput) {
  const auto help = [](gradloom::Session& session, const std::string& name) {
    try {
      session.Output(name);
    } catch (const gradloom::Error& error) {
      return error.message() + " | " + error.help();
    }
    return std::string("there is one");
  };
  gradloom::Session session(Plain());
  EXPECT_EQ(help(session, "value"),
            "there is no output 'value': nothing has run yet, the last run failed, or memory was released since | "
            "run a training step, an evaluation or a prediction first");
  const Samples samples(1);
  session.Step(samples.feeds());
  EXPECT_EQ(help(session, "value"),
            "the last run, of the kind 'training step', has no output 'value' | it has: loss; "
            "another kind of run has it: an evaluation, a prediction");
  session.Predict({samples.feeds()[0]});
  EXPECT_EQ(help(session, "loss"),
            "the last run, of the kind 'prediction', has no output 'loss' | it has: value; "
            "another kind of run has it: a training step, an evaluation");
  gradloom::Session updating(WithGradients());
  updating.Backward(samples.feeds());
  updating.Update();
  EXPECT_EQ(help(updating, "value"),
            "the last run, of the kind 'update', has no outputs, so there is no 'value' | "
            "run a training step, an evaluation or a prediction, and read its outputs before the next run");
}

TEST(Dataset, BatchesFromTensors) {
  std::vector<float> features(10 * 13), target(10);
  for (size_t i = 0; i < target.size(); ++i) target[i] = static_cast<float>(i);
  const gradloom::Dataset data(
      gradloom::Feeds{{"features", TensorView(features.data(), {10, 13})}, {"target", TensorView(target.data(), {10, 1})}});
  std::fill(target.begin(), target.end(), -1.0f);  // the data set holds a copy
  EXPECT_EQ(data.rows(), 10);
  std::vector<float> in_order, shuffled;
  for (const bool sorted : {true, false}) {
    std::vector<float>& seen = sorted ? in_order : shuffled;
    for (const gradloom::Batch& batch : data.Batches({.size = 4, .epoch = 2, .in_order = sorted})) {
      const TensorView column = batch["target"];
      EXPECT_EQ(column.shape()[0], batch.index() < 2 ? 4 : 2);
      for (const float value : column.as<float>()) seen.push_back(value);
      EXPECT_THROW(batch["no such thing"], gradloom::Error);
    }
  }
  std::vector<float> expected(10);
  std::iota(expected.begin(), expected.end(), 0.0f);
  EXPECT_EQ(in_order, expected);
  EXPECT_NE(shuffled, expected);
  std::sort(shuffled.begin(), shuffled.end());
  EXPECT_EQ(shuffled, expected);
  // Nothing specifies how the file is to be read.
  EXPECT_THROW(gradloom::Dataset("models/data/boston.csv").rows(), gradloom::Error);
}

// With as many steps as samples, where the shapes do not tell.
TEST(Dataset, BatchesFromTensorsLieAsInTheModel) {
  const auto model = ModelOfText("steps", R"(g (float[2, N, 2] x) => (float[N, 2] s) <float[2, 2] w = {1, 2, 3, 4}, int64 last = {1}>
{ m = MatMul (x, w)  s = Gather <axis = 0> (m, last) })");
  const auto plan = gradloom::Compile(model, {.loss = gradloom::Loss::Mse("s", "t"), .batch = 2});
  const std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8}, t = {0, 1, 2, 3}, laid = {1, 2, 5, 6, 3, 4, 7, 8};
  const gradloom::Dataset data(gradloom::Feeds{{"x", TensorView(x.data(), {2, 2, 2})}, {"t", TensorView(t.data(), {2, 2})}});
  gradloom::Session session(plan), wanted(plan);
  for (const gradloom::Batch& batch : data.Batches({.size = 2, .in_order = true})) {
    const TensorView own = batch["x"];
    const double loss = wanted.Step({{"x", TensorView(laid.data(), {2, 2, 2})}, {"t", TensorView(t.data(), {2, 2})}}).loss;
    EXPECT_EQ(session.Evaluate(batch).loss, loss);
    EXPECT_EQ(session.Step(batch).loss, loss);
    // A column is as it is in the data set.
    EXPECT_EQ(own.as<float>()[2], 3);
    EXPECT_EQ(batch["x"].as<float>()[2], 3);
  }
  EXPECT_EQ(session.FlatParameters(), wanted.FlatParameters());
}

TEST(DLPack, RoundTrip) {
  std::vector<int64_t> values{1, 2, 3, 4, 5, 6};
  DLManagedTensor* const managed = gradloom::ToDLPack(TensorView(values.data(), {2, 3}));
  values.assign(6, 0);  // the tensor is a copy
  const TensorView view = gradloom::FromDLPack(managed);
  EXPECT_EQ(view.shape(), (std::vector<int64_t>{2, 3}));
  const auto elements = view.as<int64_t>();
  EXPECT_EQ(std::vector<int64_t>(elements.begin(), elements.end()), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  managed->deleter(managed);
  EXPECT_THROW(gradloom::ToDLPack(TensorView(values.data(), {-1})), gradloom::Error);
}

TEST(DLPack, CopiesSessionTensors) {
  gradloom::CompileOptions options;
  options.gradients = true;
  gradloom::Session session(CompileHousing(options));
  const Samples samples(3);
  session.Evaluate(samples.feeds());
  const TensorView value = session.Output("value");
  const std::vector<float> expected(value.as<float>().begin(), value.as<float>().end());
  DLManagedTensor* const output = session.OutputToDLPack("value");
  session.Backward(samples.feeds());
  DLManagedTensor* const gradient = session.GradientToDLPack("layer1.bias");
  const gradloom::Tensor sum = session.Gradient("layer1.bias");
  DLManagedTensor* const parameter = session.ParameterToDLPack("layer1.bias");
  const gradloom::Tensor start = session.Parameter("layer1.bias");
  session.Update();
  const auto same = [](DLManagedTensor* managed, std::span<const float> elements) {
    const TensorView view = gradloom::FromDLPack(managed);
    EXPECT_EQ(managed->dl_tensor.device_type, 1);
    EXPECT_TRUE(std::equal(elements.begin(), elements.end(), view.as<float>().begin(), view.as<float>().end()));
    managed->deleter(managed);
  };
  same(output, expected);
  same(gradient, sum.as<float>());
  same(parameter, start.as<float>());
  EXPECT_THROW(session.OutputToDLPack("no such thing"), gradloom::Error);
  EXPECT_THROW(gradloom::Session(Plain()).GradientToDLPack("layer1.bias"), gradloom::Error);
}

TEST(Devices, CountDescribeAndDefault) {
  ASSERT_GE(gradloom::DeviceCount(), 1u);
  const gradloom::DeviceInfo cpu = gradloom::GetDeviceInfo(0);
  EXPECT_EQ(cpu.device, "cpu");
  EXPECT_GT(cpu.units, 0);
  EXPECT_GT(cpu.memory_total_bytes, cpu.memory_free_bytes);
  EXPECT_NE(gradloom::DevicesJson().find(cpu.name), std::string::npos);
  EXPECT_THROW(gradloom::GetDeviceInfo(gradloom::DeviceCount()), gradloom::Error);

  EXPECT_EQ(gradloom::DefaultDevices(), "");
  EXPECT_THROW(gradloom::SetDefaultDevices("abacus"), gradloom::Error);
  gradloom::SetDefaultDevices("cpu:2");
  EXPECT_EQ(gradloom::DefaultDevices(), "cpu:2");
  gradloom::CompileOptions options;
  options.loss = gradloom::Loss::Mse("value", "target");
  options.batch = kBatch;
  const gradloom::Model model("models/housing_mlp.onnx");
  gradloom::Session two(gradloom::Compile(model, options));
  EXPECT_EQ(two.Devices(), (std::vector<std::string>{"cpu:0", "cpu:1"}));
  EXPECT_EQ(two.DefaultDevice(), "cpu:0");
  options.devices = "cpu";
  EXPECT_EQ(gradloom::Session(gradloom::Compile(model, options)).Devices().size(), 1u);
  gradloom::SetDefaultDevices("");
  options.devices.clear();
  EXPECT_EQ(gradloom::Session(gradloom::Compile(model, options)).Devices().size(), 1u);
}

TEST(Export, WritesSessionWeights) {
  const Samples samples(8);
  gradloom::Session session(Plain());
  for (int i = 0; i < 3; ++i) session.Step(samples.feeds());
  session.ExportOnnx(TemporaryFile("trained.onnx"), {"value"});
  EXPECT_THROW(session.ExportOnnx(TemporaryFile("trained.onnx"), {"no such thing"}), gradloom::Error);
  gradloom::CompileOptions options;
  options.loss = gradloom::Loss::Mse("value", "target");
  options.batch = kBatch;
  gradloom::Session again(gradloom::Compile(gradloom::Model(TemporaryFile("trained.onnx")), options));
  EXPECT_EQ(again.FlatParameters(), session.FlatParameters());
}

// What leaves a session as the trained model are the averages; its parameters are the weights.
TEST(Export, WritesMovingAverages) {
  const Samples samples(8);
  const gradloom::Plan plan = CompileHousing({.optimizer = gradloom::Optimizer(gradloom::Adam{.lr = 0.01}).Ema(0.8)});
  gradloom::Session session(plan);
  for (int i = 0; i < 5; ++i) session.Step(samples.feeds());
  const float loss = session.Evaluate(samples.feeds()).loss;
  const gradloom::Tensor average = session.Parameter("layer1.weight/average"), weight = session.Parameter("layer1.weight");
  EXPECT_FALSE(std::ranges::equal(average.as<float>(), weight.as<float>()));
  EXPECT_THROW(session.Parameter("layer1.weight/mean"), gradloom::Error);
  session.ExportOnnx(TemporaryFile("averages.onnx"));
  session.SaveCheckpoint(TemporaryFile("averages.safetensors"), false);

  gradloom::CompileOptions options;
  options.loss = gradloom::Loss::Mse("value", "target");
  options.batch = kBatch;
  gradloom::Session exported(gradloom::Compile(gradloom::Model(TemporaryFile("averages.onnx")), options));
  EXPECT_TRUE(std::ranges::equal(exported.Parameter("layer1.weight").as<float>(), average.as<float>()));
  EXPECT_EQ(exported.Evaluate(samples.feeds()).loss, loss);
  gradloom::Session loaded(plan, gradloom::Checkpoint::Load(TemporaryFile("averages.safetensors")));
  EXPECT_TRUE(std::ranges::equal(loaded.Parameter("layer1.weight").as<float>(), average.as<float>()));
  EXPECT_EQ(loaded.Evaluate(samples.feeds()).loss, loss);

  // A whole checkpoint has both.
  session.SaveCheckpoint(TemporaryFile("averages.ckpt"));
  gradloom::Session resumed(plan, gradloom::Checkpoint::Load(TemporaryFile("averages.ckpt")));
  session.Step(samples.feeds());
  resumed.Step(samples.feeds());
  EXPECT_EQ(resumed.FlatParameters(), session.FlatParameters());
  EXPECT_EQ(resumed.Evaluate(samples.feeds()).loss, session.Evaluate(samples.feeds()).loss);
}

}  // namespace
