// Tests of the C++ interface: gradients that the caller changes before an update, and gradients of inputs.
#include <gradloom/gradloom.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tests/api/housing.h"

namespace {

using gradloom::EntryKind;

std::vector<float> Values(const gradloom::Tensor& tensor) {
  const auto values = tensor.as<float>();
  return {values.begin(), values.end()};
}

std::vector<float> Values(const TensorView& view) {
  const auto values = view.as<float>();
  return {values.begin(), values.end()};
}

std::vector<float> Normal(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

template <typename Call>
void ExpectError(Call&& call, const std::string& name, const std::string& message) {
  try {
    call();
    ADD_FAILURE() << "no error: " << message;
  } catch (const gradloom::Error& error) {
    EXPECT_EQ(error.name(), name) << error.what();
    EXPECT_NE(error.message().find(message), std::string::npos) << error.message();
  }
}

// ---- SetGradient ---------------------------------------------------------------------------------------------------------------------

TEST(SetGradient, ClipsByValue) {
  for (const char* devices : {"cpu", "cpu:4"}) {
    gradloom::Session session(CompileHousing({.optimizer = gradloom::Sgd{.lr = 0.5}, .devices = devices, .gradients = true}));
    session.Backward(Samples(1).feeds());
    std::vector<float> before = session.FlatParameters(), expected;
    size_t at = 0;
    bool clips = false;
    for (const gradloom::TensorInfo& info : session.Parameters()) {
      std::vector<float> gradient = Values(session.Gradient(info.name));
      for (float& g : gradient) {
        clips |= std::abs(g) > 0.01f;
        g = std::clamp(g, -0.01f, 0.01f);
        expected.push_back(before[at++] - 0.5f * g);
      }
      session.SetGradient(info.name, TensorView(gradient.data(), info.shape));
      EXPECT_EQ(Values(session.Gradient(info.name)), gradient);
    }
    EXPECT_TRUE(clips);
    EXPECT_TRUE(session.Update().updated);
    const std::vector<float> after = session.FlatParameters();
    for (size_t i = 0; i < after.size(); ++i) ASSERT_FLOAT_EQ(after[i], expected[i]) << i;
  }
}

// Gradients that another session, or another machine, has computed: no batch precedes the update.
TEST(SetGradient, IsEnoughForAnUpdate) {
  gradloom::Session computes(WithGradients()), updates(WithGradients()), both(WithGradients());
  for (unsigned step = 0; step < 3; ++step) {
    computes.Backward(Samples(step).feeds());
    both.Backward(Samples(step).feeds());
    for (const gradloom::TensorInfo& info : computes.Parameters()) updates.SetGradient(info.name, computes.Gradient(info.name).view());
    computes.ResetGradients();
    EXPECT_EQ(updates.Update().step, both.Update().step);
    EXPECT_EQ(updates.FlatParameters(), both.FlatParameters());
    computes.SetFlatParameters(updates.FlatParameters());
  }
  EXPECT_EQ(updates.batch(), 0);
  ExpectError([&] { updates.Update(); }, "E-CONFIG", "no gradients are accumulated");
}

// Gradients are those of the loss itself, whatever it is scaled by.
TEST(SetGradient, IsOfTheUnscaledLoss) {
  gradloom::Session half(CompileHousing(
      {.optimizer = gradloom::Sgd{.lr = 1}, .gradients = true, .settings = {{"train.precision", "fp16"}, {"train.loss_scale", "1024"}}}));
  const std::vector<float> before = Values(half.Parameter("layer1.bias")), gradient = Normal(16, 3);
  half.SetGradient("layer1.bias", TensorView(gradient.data(), {16}));
  EXPECT_EQ(Values(half.Gradient("layer1.bias")), gradient);
  half.Update();
  const std::vector<float> after = Values(half.Parameter("layer1.bias"));
  for (size_t i = 0; i < after.size(); ++i) EXPECT_FLOAT_EQ(after[i], before[i] - gradient[i]);
}

TEST(SetGradient, RefusesWhatIsNoGradient) {
  gradloom::Session session(WithGradients());
  const std::vector<float> values(32);
  const std::vector<double> doubles(16);
  ExpectError(
      [&] {
        session.SetGradient("layer1.bias", TensorView(values.data(), {4, 4}));
      },
      "E-SHAPE", "the gradient of 'layer1.bias' must be float32[16], got float32[4,4]");
  ExpectError([&] { session.SetGradient("layer1.bias", TensorView(doubles.data(), {16})); }, "E-SHAPE", "got float64[16]");
  ExpectError([&] { session.SetGradient("layer1.bais", TensorView(values.data(), {16})); }, "E-CONFIG",
              "no trainable parameter 'layer1.bais'");
  gradloom::Session plain(Plain());
  ExpectError([&] { plain.SetGradient("layer1.bias", TensorView(values.data(), {16})); }, "E-CONFIG", "the plan does not keep gradients");
  gradloom::Session counts(CompileHousing({.settings = {{"train.accumulate", "2"}}}));
  ExpectError([&] { counts.SetGradient("layer1.bias", TensorView(values.data(), {16})); }, "E-CONFIG",
              "the plan itself accumulates 2 batches per update");
  session.SetGradient("layer1.bias", TensorView(values.data(), {16}));
  ExpectError([&] { session.Step(Samples(1).feeds()); }, "E-CONFIG", "have been accumulated but not applied");
  session.ResetGradients();
  EXPECT_TRUE(session.Step(Samples(1).feeds()).updated);
}

TEST(SetGradient, IsNotForCallbacksOfARun) {
  gradloom::Trainer trainer(gradloom::Session(WithGradients()),
                            {.train = gradloom::Dataset(Samples(2).feeds()), .epochs = 1, .batch = kBatch});
  const std::vector<float> bias(16);
  bool called = false;
  trainer.Fit({.on_step = [&](const gradloom::StepResult&) {
    called = true;
    ExpectError([&] { trainer.session().SetGradient("layer1.bias", TensorView(bias.data(), {16})); }, "E-CONFIG", "a callback of Fit");
    return true;
  }});
  EXPECT_TRUE(called);
}

// ---- Gradients of inputs ---------------------------------------------------------------------------------------------------------------

// y = x w; the loss is the mean of (y - t)^2 over all elements, so its gradient is 2 (y - t) w' / n for x, and -2 (y - t) / n for t.
struct Linear {
  static constexpr int64_t kIn = 3, kOut = 2;
  std::vector<float> w = Normal(kIn * kOut, 1);

  gradloom::Model Of(const std::string& graph) const {
    std::string text;
    for (const float value : w) text += (text.empty() ? "" : ", ") + std::to_string(value);
    return ModelOfText("linear",
                       graph.substr(0, graph.find("WEIGHT")) + "float[3, 2] w = {" + text + "}" + graph.substr(graph.find("WEIGHT") + 6));
  }
  gradloom::Model model() const { return Of("g (float[N, 3] x) => (float[N, 2] y) <WEIGHT> { y = MatMul (x, w) }"); }

  struct Gradients {
    std::vector<float> x, target;
  };
  Gradients Expected(const std::vector<float>& x, const std::vector<float>& target) const {
    Gradients made{std::vector<float>(x.size()), std::vector<float>(target.size())};
    for (size_t row = 0; row * kOut < target.size(); ++row) {
      for (size_t k = 0; k < kOut; ++k) {
        double error = -target[row * kOut + k];
        for (size_t i = 0; i < kIn; ++i) error += x[row * kIn + i] * w[i * kOut + k];
        error *= 2.0 / static_cast<double>(target.size());
        made.target[row * kOut + k] = static_cast<float>(-error);
        for (size_t i = 0; i < kIn; ++i) made.x[row * kIn + i] += static_cast<float>(error * w[i * kOut + k]);
      }
    }
    return made;
  }
};

// Up to rounding, relative to 1 or the number.
void ExpectNear(const std::vector<float>& got, const std::vector<float>& expected, double tolerance = 1e-5) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance * std::max(1.0f, std::abs(expected[i]))) << i;
}

// By both kinds of training steps, on several devices, at a batch size that is compiled later, and whatever the loss is scaled by.
TEST(InputGradients, AreThoseOfTheLoss) {
  const Linear linear;
  const std::vector<gradloom::Settings> all_settings = {
      {}, {{"train.loss_scale", "1024"}}, {{"optimizer.clip_norm", "0.001"}}, {{"devices.recompute", "full"}}};
  for (const char* devices : {"cpu", "cpu:2", "cpu:3"}) {
    for (const gradloom::Settings& settings : all_settings) {
      const gradloom::Plan plan = gradloom::Compile(linear.model(), {.loss = gradloom::Loss::Mse("y", "t"),
                                                                     .optimizer = gradloom::Sgd{.lr = 0},
                                                                     .batch = 6,
                                                                     .devices = devices,
                                                                     .gradients = true,
                                                                     .settings = settings,
                                                                     .input_gradients = {"x", "t", "x"}});
      gradloom::Session session(plan);
      for (const int64_t rows : {6, 4}) {
        const std::vector<float> x = Normal(static_cast<size_t>(rows * 3), 2), t = Normal(static_cast<size_t>(rows * 2), 3);
        const gradloom::Feeds feeds = {{"x", TensorView(x.data(), {rows, 3})}, {"t", TensorView(t.data(), {rows, 2})}};
        const Linear::Gradients expected = linear.Expected(x, t);
        for (const bool fused : {true, false}) {
          SCOPED_TRACE(std::string(devices) + ", " + std::to_string(rows) + " rows" + (fused ? ", fused" : ""));
          fused ? session.Step(feeds) : session.Backward(feeds);
          EXPECT_EQ(session.Output("grad/x").shape(), (std::vector<int64_t>{rows, 3}));
          ExpectNear(Values(session.Output("grad/x")), expected.x);
          ExpectNear(Values(session.Output("grad/t")), expected.target);
          session.ResetGradients();
        }
      }
    }
  }
}

TEST(InputGradients, AreOutputsOfTrainingSteps) {
  const gradloom::Plan plan = CompileHousing({.input_gradients = {"features"}});
  const auto named = [&](EntryKind kind) -> const gradloom::TensorInfo* {
    static std::vector<gradloom::TensorInfo> outputs;
    outputs = plan.Outputs(kind);
    const auto found =
        std::find_if(outputs.begin(), outputs.end(), [](const gradloom::TensorInfo& info) { return info.name == "grad/features"; });
    return found == outputs.end() ? nullptr : &*found;
  };
  ASSERT_NE(named(EntryKind::kTrain), nullptr);
  EXPECT_EQ(named(EntryKind::kTrain)->shape, (std::vector<int64_t>{kBatch, 13}));
  EXPECT_EQ(named(EntryKind::kTrain)->batch_axis, 0);
  EXPECT_EQ(named(EntryKind::kEval), nullptr);
  EXPECT_EQ(named(EntryKind::kPredict), nullptr);
  // The steps themselves are the same.
  gradloom::Session session(plan), plain(Plain());
  for (unsigned step = 0; step < 3; ++step) EXPECT_EQ(session.Step(Samples(step).feeds()).loss, plain.Step(Samples(step).feeds()).loss);
  EXPECT_EQ(session.FlatParameters(), plain.FlatParameters());
  // And a plan from a file has them as well.
  const std::string path = TemporaryFile("input_gradients.plan");
  plan.Save(path);
  gradloom::Session loaded(gradloom::Plan::Load(path)), made(plan);
  loaded.Step(Samples(4).feeds());
  made.Step(Samples(4).feeds());
  EXPECT_EQ(Values(loaded.Output("grad/features")), Values(made.Output("grad/features")));
}

// An input without samples, which the loss reads twice, beside one with several positions of each.
TEST(InputGradients, OfInputsOfAnyForm) {
  const Linear linear;
  const gradloom::Model model = linear.Of(R"(g (float[N, 5, 3] x, float[3] scale) => (float[N, 5, 2] y) <WEIGHT> {
    scaled = Mul (x, scale)  again = Mul (scaled, scale)  y = MatMul (again, w) })");
  for (const char* devices : {"cpu", "cpu:2"}) {
    SCOPED_TRACE(devices);
    const gradloom::Plan plan = gradloom::Compile(model, {.loss = gradloom::Loss::Mse("y", "t"),
                                                          .optimizer = gradloom::Sgd{.lr = 0},
                                                          .batch = 4,
                                                          .devices = devices,
                                                          .input_gradients = {"x", "scale"}});
    for (const gradloom::TensorInfo& info : plan.Outputs(EntryKind::kTrain)) {
      EXPECT_EQ(info.batch_axis, info.name == "grad/x" ? 0 : -1) << info.name;
    }
    const std::vector<float> x = Normal(60, 5), t = Normal(40, 6), scale = {1.5f, -0.5f, 2.0f};
    std::vector<float> effective = x;
    for (size_t i = 0; i < x.size(); ++i) effective[i] *= scale[i % 3] * scale[i % 3];
    const std::vector<float> through = linear.Expected(effective, t).x;
    std::vector<float> of_x(60), of_scale(3);
    for (size_t i = 0; i < x.size(); ++i) {
      of_x[i] = through[i] * scale[i % 3] * scale[i % 3];
      of_scale[i % 3] += through[i] * x[i] * 2 * scale[i % 3];
    }
    gradloom::Session session(plan);
    session.Step(
        {{"x", TensorView(x.data(), {4, 5, 3})}, {"scale", TensorView(scale.data(), {3})}, {"t", TensorView(t.data(), {4, 5, 2})}});
    ExpectNear(Values(session.Output("grad/x")), of_x);
    ExpectNear(Values(session.Output("grad/scale")), of_scale);
  }
}

// Of a network of convolutions, whose kernels have layouts of their own, without dropout, which differs between steps: the slope of the
// loss along its gradient is the norm of the gradient.
TEST(InputGradients, OfImages) {
  for (const char* devices : {"cpu", "cpu:2"}) {
    SCOPED_TRACE(devices);
    gradloom::Session session(
        gradloom::Compile(gradloom::Model("models/digits_cnn.onnx"), {.loss = gradloom::Loss::CrossEntropy("logits", "label"),
                                                                      .optimizer = gradloom::Sgd{.lr = 0},
                                                                      .batch = 8,
                                                                      .devices = devices,
                                                                      .settings = {{"model.mode", "graph"}},
                                                                      .input_gradients = {"image"}}));
    const std::vector<int64_t> label = {0, 1, 2, 3, 4, 5, 6, 7};
    const std::vector<float> image = Normal(8 * 64, 1);
    const auto step = [&](const std::vector<float>& pixels) {
      return session.Step({{"image", TensorView(pixels.data(), {8, 1, 8, 8})}, {"label", TensorView(label.data(), {8})}}).loss;
    };
    step(image);
    const std::vector<float> gradient = Values(session.Output("grad/image"));
    double norm = 0;
    for (const float g : gradient) norm += g * g;
    norm = std::sqrt(norm);
    ASSERT_GT(norm, 0.01);
    constexpr double kStep = 0.02;
    std::vector<float> up = image, down = image;
    for (size_t i = 0; i < image.size(); ++i) {
      up[i] += static_cast<float>(kStep * gradient[i] / norm);
      down[i] -= static_cast<float>(kStep * gradient[i] / norm);
    }
    EXPECT_NEAR((step(up) - step(down)) / (2 * kStep), norm, 0.02 * norm);
  }
}

// Two models that are trained as one: the second passes the gradient of its input to the first, whose loss is the sum of its output times
// that gradient.
TEST(InputGradients, TrainTheModelBefore) {
  const std::string first = "a = MatMul (x, w)  h = Tanh (a)", second = "y = MatMul (h, v)";
  const auto weight = [](const std::string& type, size_t count, unsigned seed) {
    std::string text;
    for (const float value : Normal(count, seed)) text += (text.empty() ? "" : ", ") + std::to_string(value);
    return type + " = {" + text + "}";
  };
  const std::string w = weight("float[3, 4] w", 12, 1), v = weight("float[4, 2] v", 8, 2);
  const gradloom::Model whole = ModelOfText("whole",
                                            "g (float[N, 3] x) => (float[N, 2] y) <" + w + ", " + v + "> { " + first + " " + second + " }"),
                        head = ModelOfText("head", "g (float[N, 4] h) => (float[N, 2] y) <" + v + "> { " + second + " }"),
                        trunk = ModelOfText("trunk", "g (float[N, 3] x) => (float[N, 4] h) <" + w + "> { " + first + " }");
  const std::string upstream = TemporaryFile("upstream.onnxtxt");
  std::ofstream(upstream)
      << "<ir_version: 8, opset_import: [\"\" : 17]>\n"
         "u (float[N, 4] h, float[N, 4] gradient) => (float loss) { m = Mul (h, gradient)  loss = ReduceSum <keepdims = 0> (m) }";
  const gradloom::Optimizer adam = gradloom::Adam{.lr = 0.01};
  gradloom::Session together(gradloom::Compile(whole, {.loss = gradloom::Loss::Mse("y", "t"), .optimizer = adam, .batch = 8}));
  gradloom::Session last(
      gradloom::Compile(head, {.loss = gradloom::Loss::Mse("y", "t"), .optimizer = adam, .batch = 8, .input_gradients = {"h"}}));
  gradloom::Session before(gradloom::Compile(trunk, {.loss = gradloom::Loss::Graph(upstream), .optimizer = adam, .batch = 8}));
  for (unsigned step = 0; step < 5; ++step) {
    const std::vector<float> x = Normal(24, 10 + step), t = Normal(16, 20 + step);
    const TensorView inputs(x.data(), {8, 3}), target(t.data(), {8, 2});
    const double loss = together.Step({{"x", inputs}, {"t", target}}).loss;
    before.Predict({{"x", inputs}});
    EXPECT_NEAR(last.Step({{"h", before.Output("h")}, {"t", target}}).loss, loss, 1e-5 * loss);
    before.Step({{"x", inputs}, {"gradient", last.Output("grad/h")}});
  }
  ExpectNear(Values(before.Parameter("w")), Values(together.Parameter("w")), 1e-4);
  ExpectNear(Values(last.Parameter("v")), Values(together.Parameter("v")), 1e-4);
}

TEST(InputGradients, RefusesInputsWithoutOne) {
  const auto expect = [](const std::string& graph, const std::string& input, const std::string& name, const std::string& message) {
    ExpectError(
        [&] { gradloom::Compile(Linear().Of(graph), {.loss = gradloom::Loss::Mse("y", "t"), .batch = 4, .input_gradients = {input}}); },
        name, message);
  };
  const std::string graph =
      "g (float[N, 3] x, int64[N] i, float[N, 2] unused) => (float[N, 2] y, float[N, 2] z) <WEIGHT> {"
      " e = Gather (x, i)  y = MatMul (e, w)  z = Identity (unused) }";
  expect(graph, "i", "E-CONFIG", "the input 'i' is int64[4], which has no gradient");
  expect(graph, "unused", "E-CONFIG", "the loss does not depend on the input 'unused' in a way that has a gradient");
  expect(graph, "X", "E-CONFIG", "training has no input 'X' of which to compute the gradient");
}

}  // namespace
