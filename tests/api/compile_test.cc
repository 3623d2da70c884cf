// Tests of the C++ interface as programs use it: models, compilation, and what a plan reports about itself.
#include <gradloom/gradloom.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/api/housing.h"

namespace {

TEST(Model, LoadsFromFileAndMemory) {
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

// A program may write its model itself. What it exports is an ONNX file like any other.
TEST(Model, ReadsTextInMemory) {
  const std::string text =
      "<ir_version: 8, opset_import: [\"\" : 17]>\n"
      "line (float[N, 1] x) => (float[N, 1] y) <float[1, 1] w = {2}> { y = MatMul (x, w) }";
  const gradloom::Plan plan = gradloom::Compile(gradloom::Model::FromText(text),
                                                {.loss = gradloom::Loss::Mse("y", "t"), .optimizer = gradloom::Sgd{.lr = 0.5}, .batch = 1});
  gradloom::Session session(plan);
  const float x = 1, t = 3;
  EXPECT_EQ(session.Step({{"x", TensorView(&x, {1, 1})}, {"t", TensorView(&t, {1, 1})}}).loss, 1);
  const std::string path = TemporaryFile("line.onnx");
  session.ExportOnnx(path);
  gradloom::Session again(gradloom::Compile(gradloom::Model(path), {.loss = gradloom::Loss::Mse("y", "t"), .batch = 1}));
  EXPECT_EQ(again.FlatParameters(), std::vector<float>{3});
  const auto expect_error = [&](const std::string& wrong, const std::string& name) {
    try {
      gradloom::Model::FromBytes(std::as_bytes(std::span(wrong)), name);
      FAIL() << name;
    } catch (const gradloom::Error& error) {
      EXPECT_EQ(error.name(), "E-PARSE");
      EXPECT_EQ(error.where().find(name), 0u) << error.where();
    }
  };
  expect_error(text.substr(0, 60), "cut.onnxtxt");
  expect_error(text, "no text.onnx");
}

TEST(Compile, NotesSettingsWithoutEffect) {
  const auto plan = CompileHousing({.settings = {{"train.on_nan", "skip"}, {"train.precision", "bf16"}, {"train.steps", "10"}}});
  EXPECT_NE(plan.Notes().find("warning the setting train.on_nan has no effect on a plan"), std::string::npos) << plan.Notes();
  EXPECT_EQ(plan.Notes().find("train.precision"), std::string::npos) << plan.Notes();
  EXPECT_EQ(plan.Notes().find("train.steps"), std::string::npos) << plan.Notes();
}

TEST(Compile, AcceptsSettingsAndRejectsUnknownOnes) {
  const auto plan = CompileHousing({.settings = {{"train.precision", "bf16"}}});
  EXPECT_NE(plan.Text().find("bfloat16"), std::string::npos);
  try {
    CompileHousing({.settings = {{"optimizer.learning_rate", "1"}}});
    FAIL() << "an unknown key was taken";
  } catch (const gradloom::Error& error) {
    EXPECT_EQ(error.code(), GRADLOOM_E_CONFIG);
    EXPECT_NE(error.help().find("optimizer.lr"), std::string::npos) << error.what();
  }
  // A configuration in memory; options that are set explicitly override it.
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
  // A weighted sum of two losses.
  gradloom::CompileOptions options;
  options.loss = gradloom::Loss::Mse("value", "target") * 0.5 + gradloom::Loss::L1("value", "target") * 0.25;
  options.batch = kBatch;
  const auto both = gradloom::Compile(gradloom::Model("models/housing_mlp.onnx"), options);
  EXPECT_EQ(both.Property("loss"), "mse(value, target)*0.5 + l1(value, target)*0.25");
  EXPECT_EQ(both.Property("no such thing"), "");
}

TEST(Loss, NamesTheTermsOfTheKeys) {
  using gradloom::Loss;
  const std::pair<Loss, std::string> cases[] = {{Loss::BceWithLogits("value", "target"), "bce_with_logits(value, target)"},
                                                {Loss::KlDiv("value", "target"), "kl_div(value, target)"},
                                                {Loss::SmoothL1("value", "target"), "smooth_l1(value, target)"},
                                                {Loss::Huber("value", "target"), "huber(value, target)"},
                                                {Loss::LogCosh("value", "target"), "log_cosh(value, target)"},
                                                {Loss::Quantile("value", "target", 0.9), "quantile(value, target)"},
                                                {Loss::PoissonNll("value", "target"), "poisson_nll(value, target)"},
                                                {Loss::Hinge("value", "target"), "hinge(value, target)"},
                                                {Loss::SoftMargin("value", "target"), "soft_margin(value, target)"},
                                                {Loss::SigmoidFocal("value", "target"), "sigmoid_focal(value, target)"}};
  const gradloom::Model model("models/housing_mlp.onnx");
  for (const auto& [loss, text] : cases) {
    EXPECT_EQ(gradloom::Compile(model, {.loss = loss, .batch = kBatch}).Property("loss"), text);
  }
}

TEST(Library, ListsItsSettingsAndVersion) {
  GradloomText* text = nullptr;
  gradloom::internal::Check(gradloom::internal::Api().GetSettings(&text));
  const std::string settings = gradloom::internal::Take(text);
  EXPECT_NE(settings.find("\"optimizer.lr\":{"), std::string::npos) << settings;
  EXPECT_NE(settings.find("\"train.accumulate\":{"), std::string::npos) << settings;
  const std::string version = gradloom::LibraryVersion();
  EXPECT_EQ(std::count(version.begin(), version.end(), '.'), 2) << version;
}

gradloom::Plan PlanWith(const gradloom::Optimizer& optimizer, const gradloom::Settings& settings = {}) {
  return CompileHousing({.optimizer = optimizer, .eval = false, .predict = false, .settings = settings});
}

std::string BytesOf(const gradloom::Plan& plan) {
  const std::string path = TemporaryFile("optimizer.plan");
  plan.Save(path);
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The text without the keys that were set.
std::string TextOf(const gradloom::Plan& plan) {
  std::string text = plan.Text();
  const size_t at = text.find("\nproperty configuration: ");
  if (at == std::string::npos) return text;
  return text.erase(at, text.find('\n', at + 1) - at);
}

// Each option changes the plan as its key does.
TEST(Optimizer, SaysWhatTheKeysSay) {
  struct Case {
    std::string what;
    gradloom::Optimizer plain, set;
    gradloom::Settings keys;
  };
  using namespace gradloom;
  const Case cases[] = {
      {"sgd", Sgd{.momentum = 0.9}, Sgd{.momentum = 0.9, .dampening = 0.25}, {{"dampening", "0.25"}}},
      {"nesterov", Sgd{.momentum = 0.9}, Sgd{.momentum = 0.9, .nesterov = true}, {{"name", "nesterov"}}},
      {"adam", Adam{}, Adam{.amsgrad = true}, {{"amsgrad", "true"}}},
      {"adamw", AdamW{}, AdamW{.eps = 1e-6, .amsgrad = true}, {{"amsgrad", "true"}, {"eps", "1e-6"}}},
      {"nadam", NAdam{}, NAdam{.beta1 = 0.8, .momentum_decay = 0.01}, {{"beta1", "0.8"}, {"momentum_decay", "0.01"}}},
      {"radam", RAdam{}, RAdam{.beta2 = 0.99, .eps = 1e-6}, {{"beta2", "0.99"}, {"eps", "1e-6"}}},
      {"lion", Lion{}, Lion{.beta2 = 0.9, .weight_decay = 0.1}, {{"beta2", "0.9"}, {"weight_decay", "0.1"}}},
      {"rmsprop", RmsProp{}, RmsProp{.alpha = 0.8, .centered = true}, {{"alpha", "0.8"}, {"centered", "true"}}},
      {"adagrad",
       Adagrad{},
       Adagrad{.lr_decay = 0.5, .eps = 1e-3, .initial_accumulator_value = 0.25},
       {{"lr_decay", "0.5"}, {"eps", "1e-3"}, {"initial_accumulator_value", "0.25"}}},
      {"adadelta", Adadelta{}, Adadelta{.lr = 1, .rho = 0.8}, {{"lr", "1"}, {"rho", "0.8"}}},
      {"adamax", Adamax{}, Adamax{.beta1 = 0.8, .beta2 = 0.9}, {{"beta1", "0.8"}, {"beta2", "0.9"}}},
      {"lamb", Lamb{}, Lamb{.eps = 1e-4, .weight_decay = 0.1}, {{"eps", "1e-4"}, {"weight_decay", "0.1"}}},
      {"clipping", Adam{}, Optimizer(Adam{}).ClipNorm(0.5), {{"clip_norm", "0.5"}}},
      {"clipping elements", Adam{}, Optimizer(Adam{}).ClipValue(0.5), {{"clip_value", "0.5"}}},
      {"averages", Adam{}, Optimizer(Adam{}).Ema(0.99, true), {{"ema", "0.99"}, {"ema_warmup", "true"}}},
      {"no decay", AdamW{}, Optimizer(AdamW{}).NoDecay({"1d", "layer2.*"}), {{"no_decay", "['1d', 'layer2.*']"}}},
      {"factors", Sgd{}, Optimizer(Sgd{}).LrScale({{"layer1.*", 0.1}, {"*.bias", 2}}), {{"lr_scale", "{'layer1.*' = 0.1, '*.bias' = 2}"}}},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    Settings keys;
    for (const auto& [key, value] : one.keys) keys.emplace_back("optimizer." + key, value);
    const Plan plan = PlanWith(one.set);
    EXPECT_TRUE(BytesOf(plan) == BytesOf(PlanWith(one.plain, keys)));
    EXPECT_NE(TextOf(plan), TextOf(PlanWith(one.plain)));
  }
  // The defaults of the structs are those of the keys.
  for (const auto& [name, optimizer] : std::vector<std::pair<std::string, Optimizer>>{{"sgd", Sgd{}},
                                                                                      {"adam", Adam{}},
                                                                                      {"rmsprop", RmsProp{}},
                                                                                      {"adagrad", Adagrad{}},
                                                                                      {"adadelta", Adadelta{}},
                                                                                      {"adamax", Adamax{}},
                                                                                      {"nadam", NAdam{}},
                                                                                      {"radam", RAdam{}},
                                                                                      {"lion", Lion{}},
                                                                                      {"lamb", Lamb{}}}) {
    EXPECT_EQ(TextOf(PlanWith(optimizer)), TextOf(PlanWith(Optimizer(name, {})))) << name;
  }
}

// As in PyTorch: the default of the configuration's rule is not taken instead.
TEST(Optimizer, NesterovNeedsMomentum) {
  try {
    CompileHousing({.optimizer = gradloom::Sgd{.nesterov = true}});
    FAIL() << "nesterov without momentum was taken";
  } catch (const gradloom::Error& error) {
    EXPECT_EQ(error.message(), "optimizer: nesterov needs momentum");
  }
}

TEST(Optimizer, PatternsMayHaveAnyCharacters) {
  const std::string strange = "a\"b\\c\n\x7f\'\'\'d";
  for (const gradloom::Optimizer& optimizer :
       {gradloom::Optimizer(gradloom::Adam{}).NoDecay({strange}), gradloom::Optimizer(gradloom::Adam{}).LrScale({{strange, 0.5}})}) {
    try {
      CompileHousing({.optimizer = optimizer});
      FAIL() << "a pattern that matches nothing was taken";
    } catch (const gradloom::Error& error) {
      // The pattern arrived as it was given, and is shown without control characters.
      EXPECT_NE(error.message().find("'a\"b\\c\\x0a\\x7f\'\'\'d'"), std::string::npos) << error.message();
    }
  }
}

TEST(Compile, RejectsBatchBelowOne) {
  const gradloom::Model model("models/housing_mlp.onnx");
  EXPECT_THROW(gradloom::Compile(model, {.loss = gradloom::Loss::Mse("value", "target"), .batch = -3}), gradloom::Error);
}

TEST(Plan, ReportsInputsAndOutputs) {
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

TEST(Plan, ReportsTheGlobalBatchOnFourDevices) {
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

}  // namespace
