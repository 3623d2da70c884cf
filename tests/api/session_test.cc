// The C++ interface as programs use it: own buffers, DLPack, names, callbacks, asynchronous steps, sessions beside each other and in
// threads.
#include <gradloom/gradloom.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

// As dlpack.h has it.
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

using gradloom::TensorView;

constexpr int64_t kBatch = 32;

// Random features and targets of the housing model.
struct Samples {
  std::vector<float> features = std::vector<float>(kBatch * 13), target = std::vector<float>(kBatch);

  explicit Samples(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& value : features) value = normal(random);
    for (float& value : target) value = normal(random);
  }
  gradloom::Feeds feeds() const {
    return {{"features", TensorView(features.data(), {kBatch, 13})}, {"target", TensorView(target.data(), {kBatch, 1})}};
  }
};

gradloom::Plan CompileHousing(gradloom::CompileOptions options = {}) {
  options.loss = gradloom::Loss::Mse("value", "target");
  if (options.optimizer.settings().empty()) options.optimizer = gradloom::Adam{.lr = 0.01};
  if (options.devices.empty()) options.devices = "cpu";
  options.batch = kBatch;
  return gradloom::Compile(gradloom::Model("models/housing_mlp.onnx"), options);
}

const gradloom::Plan& Plain() {
  static const gradloom::Plan plan = CompileHousing();
  return plan;
}

const gradloom::Plan& WithGradients() {
  static const gradloom::Plan plan = CompileHousing({.gradients = true, .outputs = true});
  return plan;
}

std::string TemporaryFile(const std::string& name) { return testing::TempDir() + "/" + name; }

TEST(Model, IsReadFromAFileAndFromMemory) {
  std::ifstream file("models/housing_mlp.onnx", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const auto model = gradloom::Model::FromBytes(std::as_bytes(std::span(bytes)), "mine");
  EXPECT_EQ(model.InputNames(), std::vector<std::string>{"features"});
  EXPECT_EQ(model.InputNames(), gradloom::Model("models/housing_mlp.onnx").InputNames());
  try {
    gradloom::Model::FromBytes(std::as_bytes(std::span(bytes)).first(100), "half of mine");
    FAIL() << "a model that is cut off was taken";
  } catch (const gradloom::Error& error) {
    EXPECT_NE(std::string(error.what()).find("half of mine"), std::string::npos) << error.what();
    EXPECT_FALSE(error.name().empty());
  }
}

TEST(Compile, TakesSettingsAndRefusesWhatIsNone) {
  const auto plan = CompileHousing({.settings = {{"train.precision", "bf16"}}});
  EXPECT_NE(plan.Text().find("bfloat16"), std::string::npos);
  try {
    CompileHousing({.settings = {{"optimizer.learning_rate", "1"}}});
    FAIL() << "an unknown key was taken";
  } catch (const gradloom::Error& error) {
    EXPECT_EQ(error.code(), GRADLOOM_E_CONFIG);
    EXPECT_NE(error.help().find("optimizer.lr"), std::string::npos) << error.what();
  }
  // A configuration in memory, over which what is said beside it wins.
  const auto from_text = CompileHousing({.config_text = "version = 1\n[train]\nprecision = 'bf16'\n[optimizer]\nname = 'lamb'\n"});
  EXPECT_NE(from_text.Text().find("bfloat16"), std::string::npos);
  EXPECT_EQ(from_text.Text().find("Lamb"), std::string::npos);
  try {
    CompileHousing({.config_text = "version = 1\n[train]\nprecision = 16\n"});
    FAIL() << "a number was taken for a text";
  } catch (const gradloom::Error& error) {
    EXPECT_EQ(error.code(), GRADLOOM_E_CONFIG);
    EXPECT_NE(error.where().find("config_text:3"), std::string::npos) << error.what();
  }
  // Two terms with weights are one loss.
  gradloom::CompileOptions options;
  options.loss = gradloom::Loss::Mse("value", "target") * 0.5 + gradloom::Loss::L1("value", "target") * 0.25;
  options.batch = kBatch;
  const auto both = gradloom::Compile(gradloom::Model("models/housing_mlp.onnx"), options);
  EXPECT_EQ(both.Property("loss"), "mse(value, target)*0.5 + l1(value, target)*0.25");
  EXPECT_EQ(both.Property("no such thing"), "");
}

TEST(Compile, RefusesABatchOfFewerThanOneSample) {
  const gradloom::Model model("models/housing_mlp.onnx");
  EXPECT_THROW(gradloom::Compile(model, {.loss = gradloom::Loss::Mse("value", "target"), .batch = -3}), gradloom::Error);
}

TEST(Session, NamesFeedsThatNothingTakes) {
  gradloom::Session session(Plain());
  const std::vector<float> features(kBatch * 13), target(kBatch);
  try {
    session.Step({{"featurez", TensorView(features.data(), {kBatch, 13})}, {"target", TensorView(target.data(), {kBatch, 1})}});
    FAIL();
  } catch (const gradloom::Error& error) {
    EXPECT_NE(error.message().find("'features' is not given; nothing is called 'featurez'"), std::string::npos) << error.message();
  }
}

// Of the size that comes nearest, however many it has; a batch of nothing is told as what it is.
TEST(Session, TellsWhyFeedsDoNotFitWhereItHasManySizes) {
  gradloom::Session session(Plain());
  const std::vector<float> features(kBatch * 13), target(kBatch);
  const auto feeds = [&](int64_t rows, int64_t targets) {
    return gradloom::Feeds{{"features", TensorView(features.data(), {rows, 13})}, {"target", TensorView(target.data(), {targets, 1})}};
  };
  for (int64_t rows = 1; rows <= 6; ++rows) session.Step(feeds(rows, rows));
  const auto expect = [&](const gradloom::Feeds& given, const std::string& why) {
    try {
      session.Step(given);
      FAIL() << why;
    } catch (const gradloom::Error& error) {
      EXPECT_EQ(error.name(), "E-DATA");
      EXPECT_EQ(error.message(), "the feeds fit no training step of the plan: " + why);
      EXPECT_TRUE(error.help().ends_with("target float32[3,1], and 3 more")) << error.help();
    }
  };
  expect({feeds(3, 3)[0]}, "'target' is not given");
  expect(feeds(3, 5), "'target' is [5,1], the plan has [3,1]");
  expect(feeds(0, 0), "'features' is [0,13], the plan has [32,13]");
  EXPECT_EQ(session.step(), 6);
}

TEST(Plan, TellsWhatItTakesAndGives) {
  const auto inputs = WithGradients().Inputs(gradloom::EntryKind::kTrain);
  ASSERT_EQ(inputs.size(), 2u);
  EXPECT_EQ(inputs[0].name, "features");
  EXPECT_EQ(inputs[0].shape, (std::vector<int64_t>{kBatch, 13}));
  EXPECT_EQ(inputs[1].name, "target");
  EXPECT_EQ(inputs[1].batch_axis, 0);
  std::set<std::string> outputs;
  for (const auto& info : WithGradients().Outputs(gradloom::EntryKind::kTrain)) outputs.insert(info.name);
  EXPECT_EQ(outputs, (std::set<std::string>{"loss", "value"}));
  EXPECT_EQ(WithGradients().device_count(), 1u);
  EXPECT_NE(Plain().MemoryJson().find("\"accumulator_bytes\":0"), std::string::npos) << Plain().MemoryJson();
  EXPECT_EQ(WithGradients().MemoryJson().find("\"accumulator_bytes\":0"), std::string::npos);
}

TEST(Plan, OnFourDevicesTellsOfTheWholeBatch) {
  const auto plan = CompileHousing({.devices = "cpu:4"});
  EXPECT_EQ(plan.device_count(), 4u);
  const auto outputs = plan.Outputs(gradloom::EntryKind::kPredict);
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].shape, (std::vector<int64_t>{kBatch, 1}));
  gradloom::Session session(plan);
  const Samples samples(1);
  session.Step(samples.feeds());
  session.Predict({samples.feeds()[0]});
  EXPECT_EQ(session.Output("value").shape(), outputs[0].shape);
  EXPECT_EQ(session.OutputLocation("value").num_devices, 0);
  const auto place = session.ParameterLocation("layer1.weight");
  EXPECT_EQ(place.num_devices, 4);
  EXPECT_NE(place.address, nullptr);
  EXPECT_NO_THROW(session.Memory(3));
  EXPECT_THROW(session.Memory(4), gradloom::Error);
}

TEST(Session, OfMoreDevicesThanTheMachineCanHaveIsRefused) {
  const gradloom::Plan plan = CompileHousing({.devices = "cpu:600"});
  EXPECT_EQ(plan.device_count(), 600u);
  try {
    const gradloom::Session session(plan);
    FAIL() << "600 devices of one process were taken";
  } catch (const gradloom::Error& error) {
    EXPECT_EQ(error.code(), GRADLOOM_E_LIMIT) << error.what();
    EXPECT_NE(error.message().find("CPU devices are threads, and 600 of them would be"), std::string::npos) << error.what();
  }
}

TEST(Session, NeverAltersWhatItIsFed) {
  const Samples samples(2), copy = samples;
  gradloom::Session session(WithGradients());
  session.Step(samples.feeds());
  session.Backward(samples.feeds());
  session.Update();
  session.Evaluate(samples.feeds());
  session.StepAsync(samples.feeds());
  session.Wait();
  EXPECT_EQ(samples.features, copy.features);
  EXPECT_EQ(samples.target, copy.target);
}

TEST(Session, StepsOnBuffersThatWereFedByName) {
  const Samples samples(3);
  gradloom::Session by_call(Plain()), by_name(Plain());
  by_name.Feed("target", TensorView(samples.target.data(), {kBatch, 1}, gradloom::kFloat32));
  by_name.Feed("features", TensorView(samples.features.data(), {kBatch, 13}, gradloom::kFloat32));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(by_call.Step(samples.feeds()).loss, by_name.Step().loss);
  EXPECT_EQ(by_call.FlatParameters(), by_name.FlatParameters());
  // In place of what was there.
  by_name.Feed("features", TensorView(samples.features.data(), {kBatch, 12}));
  EXPECT_THROW(by_name.Step(), gradloom::Error);
}

TEST(Session, GivesOutputsAndGradientsByName) {
  const Samples samples(4);
  gradloom::Session session(WithGradients());
  const auto result = session.Backward(samples.feeds());
  const auto value = session.Output("value").as<float>();
  double loss = 0;
  for (size_t i = 0; i < value.size(); ++i) loss += std::pow(value[i] - samples.target[i], 2) / kBatch;
  EXPECT_NEAR(result.loss, loss, 1e-5 * loss);
  EXPECT_EQ(session.Output("loss").as<float>()[0], static_cast<float>(result.loss));
  EXPECT_THROW(session.Output("value").as<int64_t>(), gradloom::Error);
  EXPECT_THROW(session.Output("no such thing"), gradloom::Error);
  // The last bias adds to every value alike: its gradient is twice the mean error.
  double error = 0;
  for (size_t i = 0; i < value.size(); ++i) error += 2.0 * (value[i] - samples.target[i]) / kBatch;
  const gradloom::Tensor gradient = session.Gradient("layer3.bias");
  EXPECT_EQ(gradient.shape(), session.Parameter("layer3.bias").shape());
  EXPECT_NEAR(gradient.as<float>()[0], error, 1e-5 * kBatch);
  // A second batch adds, an update takes all of it.
  session.Backward(samples.feeds());
  EXPECT_NEAR(session.Gradient("layer3.bias").as<float>()[0], 2 * error, 2e-5 * kBatch);
  session.Update();
  EXPECT_EQ(session.Gradient("layer3.bias").as<float>()[0], 0);
}

// Gradients and updates apart on four devices, of which each keeps the sums, give what one gives.
TEST(Session, AccumulatesOnSeveralDevices) {
  gradloom::Session one(WithGradients()), four(CompileHousing({.devices = "cpu:4", .gradients = true}));
  for (unsigned i = 0; i < 4; ++i) {
    const Samples a(10 + i), b(20 + i);
    for (gradloom::Session* session : {&one, &four}) {
      session->Backward(a.feeds());
      session->Backward(b.feeds());
    }
    const auto expected = one.Gradient("layer1.weight"), got = four.Gradient("layer1.weight");
    double largest = 0;
    for (const float g : expected.as<float>()) largest = std::max<double>(largest, std::abs(g));
    for (int64_t k = 0; k < expected.elements(); ++k)
      ASSERT_NEAR(got.as<float>()[static_cast<size_t>(k)], expected.as<float>()[static_cast<size_t>(k)], 1e-4 * largest);
    EXPECT_EQ(four.GradientLocation("layer1.weight").num_devices, 4);
    one.Update();
    four.Update();
  }
  const auto expected = one.FlatParameters(), got = four.FlatParameters();
  for (size_t k = 0; k < expected.size(); ++k) ASSERT_NEAR(got[k], expected[k], 1e-3);
}

// What a loss is scaled by is none of the caller's business. float16 has 11 bits, and a gradient here is a sum of 32 rounded terms.
TEST(Session, GivesGradientsOfTheLossAsItIs) {
  const auto plan = CompileHousing({.gradients = true, .settings = {{"train.precision", "fp16"}, {"train.loss_scale", "1024"}}});
  gradloom::Session whole(WithGradients()), half(plan);
  const Samples samples(9);
  whole.Backward(samples.feeds());
  half.Backward(samples.feeds());
  const auto expected = whole.Gradient("layer3.bias"), got = half.Gradient("layer3.bias");
  EXPECT_NEAR(got.as<float>()[0], expected.as<float>()[0], 0.02);
  const auto before = half.FlatParameters();
  EXPECT_TRUE(half.Update().updated);
  EXPECT_NE(before, half.FlatParameters());
}

TEST(Session, SetsParametersByNameAndAsOneVector) {
  gradloom::Session session(Plain()), other(Plain());
  std::vector<std::string> names;
  for (const auto& info : session.Parameters()) names.push_back(info.name);
  EXPECT_EQ(names.size(), 6u);
  std::vector<float> bias(16);
  std::iota(bias.begin(), bias.end(), 1.0f);
  session.SetParameter("layer1.bias", TensorView(bias.data(), {16}));
  const gradloom::Tensor read = session.Parameter("layer1.bias");
  EXPECT_TRUE(std::equal(bias.begin(), bias.end(), read.as<float>().begin()));
  EXPECT_THROW(session.SetParameter("layer1.bias", TensorView(bias.data(), {4, 4})), gradloom::Error);
  EXPECT_THROW(session.SetParameter("no such thing", TensorView(bias.data(), {16})), gradloom::Error);
  EXPECT_NE(session.FlatParameters(), other.FlatParameters());
  other.SetFlatParameters(session.FlatParameters());
  EXPECT_EQ(session.FlatParameters(), other.FlatParameters());
  EXPECT_THROW(other.SetFlatParameters(std::vector<float>(3)), gradloom::Error);
}

TEST(Session, RunsAStepOfItsOwnThread) {
  const Samples samples(5);
  gradloom::Session plain(Plain()), async(Plain());
  for (int i = 0; i < 20; ++i) {
    const auto expected = plain.Step(samples.feeds());
    async.StepAsync(samples.feeds());
    // A call meanwhile waits for the step.
    if (i % 2 == 0) {
      EXPECT_EQ(async.step(), i + 1);
    }
    if (i == 7) {
      EXPECT_THROW(async.StepAsync(samples.feeds()), gradloom::Error);
    }
    const auto result = async.Wait();
    EXPECT_EQ(result.loss, expected.loss);
    EXPECT_EQ(result.step, i + 1);
  }
  EXPECT_THROW(async.Wait(), gradloom::Error);
  EXPECT_EQ(plain.FlatParameters(), async.FlatParameters());
  // An error comes with Wait, and once.
  async.StepAsync({{"features", TensorView(samples.features.data(), {kBatch, 13})}});
  EXPECT_THROW(async.Wait(), gradloom::Error);
  EXPECT_NO_THROW(async.Step(samples.feeds()));
  // Ending with a step under way.
  gradloom::Session ends(Plain());
  ends.StepAsync(samples.feeds());
}

// Sessions in threads of their own, over one plan: each gives what it gives alone.
TEST(Session, RunsBesideOthers) {
  constexpr int kThreads = 4, kSteps = 10;
  std::vector<std::vector<float>> expected, got(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    gradloom::Session session(Plain(), {.seed = t});
    const Samples samples(static_cast<unsigned>(t));
    for (int i = 0; i < kSteps; ++i) session.Step(samples.feeds());
    expected.push_back(session.FlatParameters());
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&got, t] {
      gradloom::Session session(Plain(), {.seed = t});
      const Samples samples(static_cast<unsigned>(t));
      for (int i = 0; i < kSteps; ++i) session.Step(samples.feeds());
      got[static_cast<size_t>(t)] = session.FlatParameters();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, expected);
}

// One session from several threads: calls come one after the other.
TEST(Session, TakesCallsFromSeveralThreads) {
  constexpr int kThreads = 4, kSteps = 8;
  gradloom::Session session(WithGradients());
  std::atomic<int> updated{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&session, &updated, t] {
      const Samples samples(static_cast<unsigned>(t));
      for (int i = 0; i < kSteps; ++i) {
        if (t == 0) {
          session.FlatParameters();
          session.CheckpointBytes();
          session.learning_rate();
        } else if (t == 1) {
          session.Evaluate(samples.feeds());
          session.ParameterLocation("layer1.bias");
        } else {
          updated += session.Step(samples.feeds()).updated ? 1 : 0;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(updated, 2 * kSteps);
  EXPECT_EQ(session.step(), 2 * kSteps);
  for (const float value : session.FlatParameters()) ASSERT_TRUE(std::isfinite(value));
}

TEST(Checkpoint, GoesOnToTheSameBits) {
  const Samples samples(6);
  gradloom::Session session(Plain(), {.seed = 7});
  for (int i = 0; i < 5; ++i) session.Step(samples.feeds());
  session.AddProperty("data", "samples 6");
  session.set_learning_rate(0.125);
  session.SaveCheckpoint(TemporaryFile("checkpoint"));
  gradloom::Session resumed(Plain(), gradloom::Checkpoint::Load(TemporaryFile("checkpoint")));
  EXPECT_EQ(resumed.step(), 5);
  EXPECT_EQ(resumed.learning_rate(), 0.125);
  EXPECT_EQ(resumed.Property("data"), "samples 6");
  EXPECT_EQ(resumed.Property("no such thing"), std::nullopt);
  session.Step(samples.feeds());
  resumed.Step(samples.feeds());
  EXPECT_EQ(session.FlatParameters(), resumed.FlatParameters());
  // Of another optimizer it holds other state.
  const auto other = CompileHousing({.optimizer = gradloom::Sgd{.lr = 0.1}});
  EXPECT_THROW(gradloom::Session(other, gradloom::Checkpoint::Load(TemporaryFile("checkpoint"))), gradloom::Error);
  // Weights alone fit any.
  const std::string weights = session.CheckpointBytes(false);
  gradloom::Session fresh(other, gradloom::Checkpoint::FromBytes(std::as_bytes(std::span(weights))));
  EXPECT_EQ(fresh.FlatParameters(), session.FlatParameters());
  EXPECT_EQ(fresh.step(), 0);
}

TEST(Checkpoint, OfASessionThatCompiledOtherBatchesFitsItsPlan) {
  const Samples samples(7);
  gradloom::Session session(Plain());
  session.Step(samples.feeds());
  session.Step({{"features", TensorView(samples.features.data(), {9, 13})}, {"target", TensorView(samples.target.data(), {9, 1})}});
  const std::string bytes = session.CheckpointBytes();
  gradloom::Session resumed(Plain(), gradloom::Checkpoint::FromBytes(std::as_bytes(std::span(bytes))));
  EXPECT_EQ(resumed.step(), 2);
  session.Step(samples.feeds());
  resumed.Step(samples.feeds());
  EXPECT_EQ(session.FlatParameters(), resumed.FlatParameters());
}

TEST(Dataset, MayBeSeveralFilesWhoseNamesDoNotSayWhatTheyAre) {
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
  // What they are has to be said, and to be something.
  EXPECT_EQ(refusal(folder + "/part-?", "").substr(0, 7), "E-DATA:");
  EXPECT_EQ(refusal(folder + "/part-?", "xls"), "E-CONFIG: data have no format 'xls'");
  EXPECT_EQ(refusal(folder + "/other-*", "csv").substr(0, 7), "E-DATA:");
}

TEST(Trainer, TellsItsCallbacksAndStopsForThem) {
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
            // The session may be read between steps, not stepped.
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
}

TEST(Dataset, GivesBatchesOfOwnTensors) {
  std::vector<float> features(10 * 13), target(10);
  for (size_t i = 0; i < target.size(); ++i) target[i] = static_cast<float>(i);
  const gradloom::Dataset data(
      gradloom::Feeds{{"features", TensorView(features.data(), {10, 13})}, {"target", TensorView(target.data(), {10, 1})}});
  std::fill(target.begin(), target.end(), -1.0f);  // it has a copy
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
  // Nothing says how a file is read.
  EXPECT_THROW(gradloom::Dataset("models/data/boston.csv").rows(), gradloom::Error);
}

TEST(DLPack, GoesThereAndBack) {
  std::vector<int64_t> values{1, 2, 3, 4, 5, 6};
  DLManagedTensor* const managed = gradloom::ToDLPack(TensorView(values.data(), {2, 3}));
  values.assign(6, 0);  // it is a copy
  const TensorView view = gradloom::FromDLPack(managed);
  EXPECT_EQ(view.shape(), (std::vector<int64_t>{2, 3}));
  const auto elements = view.as<int64_t>();
  EXPECT_EQ(std::vector<int64_t>(elements.begin(), elements.end()), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  managed->deleter(managed);
  EXPECT_THROW(gradloom::ToDLPack(TensorView(values.data(), {-1})), gradloom::Error);
}

TEST(DLPack, CopiesWhatASessionHas) {
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

TEST(Devices, AreCountedDescribedAndTakenWhereNothingNamesThem) {
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

TEST(Export, WritesTheModelWithTheWeightsOfTheSession) {
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

}  // namespace
