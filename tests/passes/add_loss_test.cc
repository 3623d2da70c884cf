#include "compiler/passes/loss/add_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "runtime/session/session.h"

namespace gradloom {
namespace {

Model ModelOf(const std::string& graph) { return Model::FromText("<ir_version: 10, opset_import: [\"\" : 17]>\n" + graph); }

CompileOptions OptionsOf(std::vector<LossTerm> losses, int64_t batch) {
  CompileOptions options;
  options.recipe.losses = std::move(losses);
  options.recipe.optimizer.type = "sgd";
  options.recipe.fetch_gradients = true;
  options.entries = {{EntryKind::kStep, batch}};
  return options;
}

Session SessionOf(const std::string& graph, std::vector<LossTerm> losses, int64_t batch) {
  return Session(std::make_shared<const Plan>(Compile(ModelOf(graph), OptionsOf(std::move(losses), batch))));
}

Error Refused(const std::string& graph, std::vector<LossTerm> losses, int64_t batch = 2) {
  try {
    Compile(ModelOf(graph), OptionsOf(std::move(losses), batch));
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "this loss compiles";
  return Error(ErrorCode::kInternal, "none");
}

void ExpectHas(const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text; }

const std::string kTwoShapes = R"(
g (float[N, 6] x) => (float[N, 2, 3] a, float[N, 3, 2] b) <float[6] w = {1, 2, 3, 4, 5, 6}, int64[3] s = {0, 2, 3}, int64[3] t = {0, 3, 2}>
{
  h = Mul (x, w)
  a = Reshape (h, s)
  b = Reshape (h, t)
}
)";

// The same number of elements in another shape is not the same target.
TEST(AddLoss, RejectsTargetsOfAnotherShape) {
  const Error error = Refused(kTwoShapes, {{.type = "mse", .output = "a", .target = "y"}, {.type = "l1", .output = "b", .target = "y"}});
  EXPECT_EQ(error.code(), ErrorCode::kShape);
  ExpectHas(error.message(), "target 'y' is [2,2,3], but this loss expects [2,3,2]");
  EXPECT_EQ(error.where(), "text  loss l1");
  ExpectHas(error.help(), "compared with the output 'b' [2,3,2]");
}

const std::string kColumn = R"(
g (float[N, 1] x) => (float[N, 1] column, float[N] row) <float[1, 1] w = {2}, int64[1] s = {-1}>
{
  column = MatMul (x, w)
  row = Reshape (column, s)
}
)";

// [B] and [B,1]: four differences, not sixteen.
TEST(AddLoss, AlignsColumnsAndRows) {
  Session session =
      SessionOf(kColumn, {{.type = "mse", .output = "column", .target = "y"}, {.type = "mse", .output = "row", .target = "y"}}, 4);
  const Tensor x = Tensor::From<float>({1, 2, 3, 4}, Shape{4, 1}), y = Tensor::From<float>({2, 4, 6, 12}, Shape{4, 1});
  // Twice the mean of 0, 0, 0 and 16.
  EXPECT_FLOAT_EQ(static_cast<float>(session.Step({{"x", x.view()}, {"y", y.view()}}).loss), 8);
}

const std::string kInner = R"(
g (float[N, 2] x) => (float[N, 2] z) <float[2] w = {1, 3}>
{
  y = Mul (x, w)
  z = Relu (y)
}
)";

// The name of a target belongs to the data. An intermediate value with the same name is unaffected.
TEST(AddLoss, TargetNamedLikeAnInnerValueIsFed) {
  for (const char* name : {"y", "w"}) {
    const Model model = ModelOf(kInner);
    const CompileOptions options = OptionsOf({{.type = "mse", .output = "z", .target = name}}, 2);
    const std::vector<Feed> feeds = FeedsOfEntry(model, options, options.entries[0]);
    ASSERT_EQ(feeds.size(), 2u);
    EXPECT_EQ(feeds[1].name, name);
    Session session(std::make_shared<const Plan>(Compile(model, options)));
    const Tensor x = Tensor::From<float>({1, 1, 2, 2}, Shape{2, 2}), y = Tensor::From<float>({0, 3, 2, 6}, Shape{2, 2});
    EXPECT_FLOAT_EQ(static_cast<float>(session.Step({{"x", x.view()}, {name, y.view()}}).loss), 0.25f);
  }
}

// An output and the target that it is compared with may have one name, the loss says which is which: feeds are targets, fetches outputs.
TEST(AddLoss, TargetNamedLikeItsOutput) {
  for (const int devices : {1, 2}) {
    CompileOptions options = OptionsOf({{.type = "mse", .output = "z", .target = "z"}}, 2);
    options.recipe.devices = devices;
    options.recipe.fetch_outputs = true;
    options.entries.push_back({EntryKind::kEval, 2});
    options.entries.push_back({EntryKind::kPredict, 2});
    const auto plan = std::make_shared<const Plan>(Compile(ModelOf(kInner), options));
    EXPECT_EQ(plan->losses.front().output, "z");
    EXPECT_EQ(plan->losses.front().target, "z");
    for (const Entry& entry : plan->entries) {
      const bool predicts = entry.kind == EntryKind::kPredict;
      ASSERT_EQ(entry.feeds.size(), predicts ? 1u : 2u);
      EXPECT_EQ(entry.feeds.back().name, predicts ? "x" : "z");
      for (const Buffer& buffer : plan->programs[static_cast<size_t>(entry.ranks[0].program)].buffers) {
        const std::string& fed = buffer.feed >= 0 ? entry.feeds[static_cast<size_t>(buffer.feed)].name : buffer.name;
        EXPECT_EQ(buffer.name, fed);
      }
    }
    Session session(plan);
    const Tensor x = Tensor::From<float>({1, 1, 2, 2}, Shape{2, 2}), z = Tensor::From<float>({0, 3, 2, 7}, Shape{2, 2});
    const Feeds feeds{{"x", x.view()}, {"z", z.view()}};
    // Of z = x * {1, 3}.
    const std::map<std::string, Tensor> evaluated = session.Evaluate(feeds);
    EXPECT_FLOAT_EQ(evaluated.at("z").as<float>()[3], 6);
    EXPECT_FLOAT_EQ(evaluated.at("loss").as<float>()[0], 0.5f);
    EXPECT_FLOAT_EQ(static_cast<float>(session.Step(feeds).loss), 0.5f);
    EXPECT_FLOAT_EQ(static_cast<float>(ElementAsDouble(session.Fetched("z"), 3)), 6);
    EXPECT_FLOAT_EQ(static_cast<float>(ElementAsDouble(session.Fetched("grad/w"), 1)), -1);
  }
}

// The defaults, the first output and "target", may be one name as well.
TEST(AddLoss, DefaultTargetNamedLikeTheDefaultOutput) {
  Session session =
      SessionOf("g (float[N, 2] x) => (float[N, 2] target) <float[2] w = {1, 3}> { target = Mul (x, w) }", {{.type = "mse"}}, 1);
  const Tensor x = Tensor::From<float>({1, 1}, Shape{1, 2}), target = Tensor::From<float>({1, 5}, Shape{1, 2});
  EXPECT_FLOAT_EQ(static_cast<float>(session.Step({{"x", x.view()}, {"target", target.view()}}).loss), 2);
}

const std::string kTwoOutputs = R"(
g (float[N, 2] x) => (float[N, 2] z, float[N, 2] aux, int64[N] label) <float[2] w = {1, 3}>
{
  z = Mul (x, w)
  aux = Neg (z)
  label = ArgMax <axis = 1, keepdims = 0> (z)
}
)";

// Another output of the name is not what the loss compares with: if a term says that the name is one of the data, or if the output is not
// of the target's type, such as the class that a classifier predicts.
TEST(AddLoss, TargetNamedLikeAnotherOutput) {
  const Tensor x = Tensor::From<float>({1, 1}, Shape{1, 2}), z = Tensor::From<float>({1, 5}, Shape{1, 2});
  for (const bool first : {true, false}) {
    std::vector<LossTerm> terms{{.type = "mse", .output = "z", .target = "z"}, {.type = "mse", .output = "aux", .target = "z"}};
    if (!first) std::swap(terms[0], terms[1]);
    Session session = SessionOf(kTwoOutputs, terms, 1);
    // {0, 2} and {2, 8} squared.
    EXPECT_FLOAT_EQ(static_cast<float>(session.Step({{"x", x.view()}, {"z", z.view()}}).loss), 2 + 34);
  }
  const Tensor label = Tensor::From<int64_t>({0}, Shape{1});
  Session session = SessionOf(kTwoOutputs, {{.type = "cross_entropy", .output = "z", .target = "label"}}, 1);
  EXPECT_NEAR(session.Step({{"x", x.view()}, {"label", label.view()}}).loss, std::log(std::exp(1.0) + std::exp(3.0)) - 1, 1e-5);
}

// A loss of two outputs that is written like one of an output and a target.
TEST(AddLoss, RejectsAnOutputThatCouldBeComparedAsTarget) {
  const Error error = Refused(kTwoOutputs, {{.type = "mse", .output = "z", .target = "aux"}});
  EXPECT_EQ(error.code(), ErrorCode::kConfig);
  ExpectHas(error.message(), "the target 'aux' is also the name of an output that could be compared");
  ExpectHas(error.help(), "--map NAME=aux");
  ExpectHas(error.help(), "'FILE.onnx(a=OUTPUT, b=aux)'");
}

// Samples along another axis than the first are found by name, for a target and an output each.
TEST(AddLoss, BatchAxisOfATargetNamedLikeItsOutput) {
  const Model model = ModelOf("g (float[3, 4, 2] x) => (float[3, 4, 2] y) <float[2] w = {1, 3}> { y = Mul (x, w) }");
  CompileOptions options = OptionsOf({{.type = "cross_entropy", .output = "y", .target = "y", .class_axis = 2}}, 4);
  options.import.batch_axis = 1;
  options.entries = {{EntryKind::kEval, 4}};
  const Entry entry = Compile(model, options).entries[0];
  ASSERT_EQ(entry.feeds.size(), 2u);
  EXPECT_EQ(entry.feeds[1].shape, (Shape{3, 4}));
  EXPECT_EQ(entry.feeds[1].batch_axis, 1);
  const auto output = std::find_if(entry.fetches.begin(), entry.fetches.end(), [](const Fetch& fetch) { return fetch.name == "y"; });
  ASSERT_NE(output, entry.fetches.end());
  EXPECT_EQ(output->batch_axis, 1);
}

// An input can be its own target, as in an autoencoder, if the shapes are equal.
TEST(AddLoss, ModelInputsCanBeTargets) {
  Session session = SessionOf(kInner, {{.type = "mse", .output = "z", .target = "x"}}, 1);
  const Tensor x = Tensor::From<float>({1, 1}, Shape{1, 2});
  EXPECT_FLOAT_EQ(static_cast<float>(session.Step({{"x", x.view()}}).loss), 2);
  const Error shape = Refused(kTwoShapes, {{.type = "mse", .output = "a", .target = "x"}});
  EXPECT_EQ(shape.code(), ErrorCode::kShape);
  ExpectHas(shape.message(), "target and model input 'x' is [2,6], but this loss expects [2,2,3]");
  const Error type = Refused(kInner, {{.type = "cross_entropy", .output = "z", .target = "x"}});
  EXPECT_EQ(type.code(), ErrorCode::kType);
  ExpectHas(type.message(), "float32[2,2], but this loss expects int64[2]");
}

TEST(AddLoss, UnknownOutputsSuggestTheNearest) {
  const Error error = Refused(kColumn, {{.type = "mse", .output = "colum", .target = "y"}});
  EXPECT_EQ(error.code(), ErrorCode::kConfig);
  ExpectHas(error.help(), "did you mean 'column'?   its outputs are: column, row");
}

const std::string kLogits = R"(
g (float[N, 3, M] x) => (float[N, 3, M] z) <float[3, 1] w = {1, -2, 0.5}>
{
  z = Mul (x, w)
}
)";

// One-hot probabilities are equivalent to classes. Both axes besides the class axis count.
TEST(AddLoss, ClassProbabilitiesAgreeWithClasses) {
  const Tensor x = Tensor::From<float>({1, 2, -1, 0.5f, 3, -2, 0, 1, 2, -3, 0.25f, 1}, Shape{2, 3, 2});
  const Tensor classes = Tensor::From<int64_t>({0, 2, 1, 1}, Shape{2, 2});
  const Tensor one_hot = Tensor::From<float>({1, 0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0}, Shape{2, 3, 2});
  std::vector<double> losses;
  std::vector<std::vector<float>> gradients;
  for (const bool probabilities : {false, true}) {
    CompileOptions options =
        OptionsOf({{.type = "cross_entropy", .output = "z", .target = "y", .label_smoothing = 0.1, .probabilities = probabilities}}, 2);
    options.import.shapes["M"] = 2;
    Session session(std::make_shared<const Plan>(Compile(ModelOf(kLogits), options)));
    losses.push_back(session.Step({{"x", x.view()}, {"y", probabilities ? one_hot.view() : classes.view()}}).loss);
    const auto gradient = session.Fetched("grad/w");
    for (int64_t i = 0; i < 3; ++i) gradients.emplace_back().push_back(static_cast<float>(ElementAsDouble(gradient, i)));
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-6);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(gradients[i][0], gradients[i + 3][0], 1e-6);
  EXPECT_GT(std::abs(gradients[0][0]), 1e-3);
}

// For a softmax, and for other values that sum to one, with a class of probability zero.
TEST(AddLoss, CrossEntropyOfProbabilities) {
  const std::string text = R"(
g (float[N, 3] x) => (float[N, 3] z, float[N, 3] p, float[N, 3] q) <float[3] w = {1, -2, 0.5}, int64[1] axis = {1}>
{
  z = Mul (x, w)
  p = Softmax (z)
  e = Exp (z)
  sum = ReduceSum (e, axis)
  q = Div (e, sum)
})";
  const Tensor x = Tensor::From<float>({1, 2, -1, 0.5f, 3, -200}, Shape{2, 3}), y = Tensor::From<int64_t>({1, 0}, Shape{2});
  std::vector<double> losses;
  std::vector<std::vector<double>> gradients;
  for (const auto& [type, output] : {std::pair("cross_entropy", "z"), std::pair("cross_entropy_of_probabilities", "p"),
                                     std::pair("cross_entropy_of_probabilities", "q")}) {
    Session session = SessionOf(text, {{.type = type, .output = output, .target = "y", .label_smoothing = 0}}, 2);
    losses.push_back(session.Step({{"x", x.view()}, {"y", y.view()}}).loss);
    const auto gradient = session.Fetched("grad/w");
    for (int64_t i = 0; i < 3; ++i) gradients.emplace_back().push_back(ElementAsDouble(gradient, i));
  }
  for (size_t i = 1; i < 3; ++i) {
    EXPECT_NEAR(losses[i], losses[0], 1e-6);
    for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(gradients[3 * i + k][0], gradients[k][0], 1e-5);
  }
  // The correct class has a probability of zero in float32.
  const Tensor wrong = Tensor::From<int64_t>({1, 2}, Shape{2});
  for (const char* const output : {"p", "q"}) {
    Session session = SessionOf(text, {{.type = "cross_entropy_of_probabilities", .output = output, .target = "y"}}, 2);
    const double loss = session.Step({{"x", x.view()}, {"y", wrong.view()}}).loss;
    EXPECT_NEAR(loss, (5.2077 - std::log(1e-30)) / 2, 0.01);
    EXPECT_EQ(session.NonFiniteState(), "");
  }
}

// Probabilities that are not one-hot: -(0.25 log p0 + 0.75 log p1), each term with its weight, over two rows.
TEST(AddLoss, SoftClassProbabilities) {
  Session session = SessionOf(R"(
g (float[N, 2] x) => (float[N, 2] z) <float[2] w = {1, 1}> { z = Mul (x, w) })",
                              {{.type = "cross_entropy", .output = "z", .target = "y", .probabilities = true, .class_weight = {1, 2}}}, 2);
  const Tensor x = Tensor::From<float>({0, 0, 0, 0}, Shape{2, 2}), y = Tensor::From<float>({0.25f, 0.75f, 1, 0}, Shape{2, 2});
  EXPECT_NEAR(session.Step({{"x", x.view()}, {"y", y.view()}}).loss, std::log(2.0) * (0.25 + 1.5 + 1) / 2, 1e-6);
  EXPECT_EQ(Refused(kInner, {{.type = "cross_entropy", .output = "z", .target = "t", .ignore_index = 1, .probabilities = true}}).code(),
            ErrorCode::kConfig);
}

// The gradient of a confident answer is the small probability of the other one, and not the difference of two numbers near 1.
TEST(AddLoss, ConfidentAnswersHaveExactGradients) {
  Session session = SessionOf(R"(
g (float[N, 3] x) => (float[N, 3] z) <float[3] w = {1, 1, 1}> { z = Mul (x, w) })",
                              {{.type = "bce_with_logits", .output = "z", .target = "y", .reduction = "sum", .pos_weight = {3}}}, 1);
  const Tensor x = Tensor::From<float>({-20, 18, 0}, Shape{1, 3}), y = Tensor::From<float>({0, 1, 0}, Shape{1, 3});
  const double loss = session.Step({{"x", x.view()}, {"y", y.view()}}).loss, no = std::exp(-20.0), yes = 3 * std::exp(-18.0);
  EXPECT_NEAR(loss, no + yes + std::log(2.0), 1e-6);
  const auto gradient = session.Fetched("grad/w");
  EXPECT_NEAR(ElementAsDouble(gradient, 0), -20 * no, 1e-5 * 20 * no);
  EXPECT_NEAR(ElementAsDouble(gradient, 1), -18 * yes, 1e-5 * 18 * yes);
}

// Where a probability rounds to 0, the loss is PyTorch's 100. The inverse of 1e-39 is infinite in float32.
TEST(AddLoss, ImpossibleAnswersHaveFiniteGradients) {
  Session session = SessionOf(R"(
g (float[N, 4] x) => (float[N, 4] p) <float[4] w = {1, 1, 1, 1}> { p = Mul (x, w) })",
                              {{.type = "bce", .output = "p", .target = "y", .reduction = "sum"}}, 1);
  const Tensor x = Tensor::From<float>({0, 1, 1e-39F, 1e-30F}, Shape{1, 4}), y = Tensor::From<float>({1, 0, 1, 1}, Shape{1, 4});
  EXPECT_FLOAT_EQ(static_cast<float>(session.Step({{"x", x.view()}, {"y", y.view()}}).loss), 300 - std::log(1e-30));
  const auto gradient = session.Fetched("grad/w");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ElementAsDouble(gradient, i), 0) << i;
  EXPECT_NEAR(ElementAsDouble(gradient, 3), -1, 1e-6);
}

const std::string kTwoHeads = R"(
g (float[N, 4] x) => (float[N, 3] logits, float[N, 2] box) <float[4, 3] v = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9},
    float[4, 2] w = {0.4, -0.9, 0.6, 1.2, -0.7, 0.5, -1.1, 0.35}>
{
  h = Tanh (x)
  logits = MatMul (h, v)
  box = MatMul (h, w)
}
)";

// Each term is the loss of a model that has only this term, times its weight, in training and evaluation, on one device and on several.
TEST(AddLoss, TermsAreFetchedByName) {
  const std::vector<LossTerm> losses = {{.type = "cross_entropy", .output = "logits", .target = "label"},
                                        {.type = "mse", .output = "box", .target = "boxes", .weight = 0.25}};
  const Tensor x = Tensor::From<float>({1, 2, -1, 0.5f, 3, -2, 0.1f, 0.2f, 0.3f, -0.4f, 1, 1}, Shape{3, 4});
  const Tensor label = Tensor::From<int64_t>({0, 2, -100}, Shape{3}), boxes = Tensor::From<float>({1, 2, -1, 0.5f, 3, -2}, Shape{3, 2});
  const Feeds feeds{{"x", x.view()}, {"label", label.view()}, {"boxes", boxes.view()}};
  std::vector<double> alone;
  for (const LossTerm& term : losses) {
    Session session = SessionOf(kTwoHeads, {term}, 3);
    const StepResult result = session.Step(feeds);
    EXPECT_TRUE(result.terms.empty());
    EXPECT_TRUE(session.plan().loss_terms.empty());
    alone.push_back(result.loss);
  }
  for (const int devices : {1, 3}) {
    for (const int64_t accumulate : {1, 2}) {
      SCOPED_TRACE(std::to_string(devices) + " devices, " + std::to_string(accumulate) + " batches for an update");
      CompileOptions options = OptionsOf(losses, 3);
      options.recipe.devices = devices;
      options.recipe.accumulate = accumulate;
      options.recipe.fetch_gradients = false;
      options.entries.push_back({EntryKind::kEval, 3});
      Session session(std::make_shared<const Plan>(Compile(ModelOf(kTwoHeads), options)));
      EXPECT_EQ(session.plan().loss_terms, (std::vector<std::string>{"loss/logits", "loss/box"}));
      const auto expect_terms = [&](const std::vector<double>& terms, double loss) {
        ASSERT_EQ(terms.size(), 2U);
        for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(terms[i], alone[i], 1e-5) << i;
        EXPECT_NEAR(loss, terms[0] + terms[1], 1e-6);
      };
      const std::map<std::string, Tensor> values = session.Evaluate(feeds);
      expect_terms(session.loss_terms(), session.loss());
      EXPECT_EQ(ElementAsDouble(values.at("loss/box").view(), 0), session.loss_terms()[1]);
      const StepResult result = session.Step(feeds);
      expect_terms(result.terms, result.loss);
    }
  }
}

TEST(AddLoss, TermsHaveDifferentNames) {
  const auto names = [](std::vector<LossTerm> terms, std::vector<std::string> outputs = {"a", "b"}) {
    return LossTermFetches(terms, std::move(outputs));
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names({{.type = "mse", .output = "a"}}), Names());
  EXPECT_EQ(names({{.type = "mse"}, {.type = "mse", .output = "b"}}), (Names{"loss/a", "loss/b"}));
  // Distillation: two losses of one output.
  EXPECT_EQ(names({{.type = "cross_entropy", .output = "a"}, {.type = "kl_div", .output = "a"}}),
            (Names{"loss/cross_entropy", "loss/kl_div"}));
  EXPECT_EQ(names({{.type = "mse", .output = "a"}, {.type = "mse", .output = "a", .target = "y"}}), (Names{"loss/target", "loss/y"}));
  EXPECT_EQ(names({{.type = "mse", .output = "a"}, {.type = "mse", .output = "a"}, {.type = "l1", .output = "b"}}),
            (Names{"loss/a", "loss/a_2", "loss/b"}));
  // An output of the model may have the name, and a name may have any characters.
  EXPECT_EQ(names({{.type = "mse", .output = "a"}, {.type = "mse", .output = "b"}}, {"a", "b", "loss/a"}), (Names{"loss/a_2", "loss/b"}));
  EXPECT_EQ(names({{.type = "mse", .output = "a"}, {.type = "mse", .output = "b\n"}}), (Names{"loss/a", "loss/b\\x0a"}));
}

TEST(AddLoss, RefusesOptionsOutOfRange) {
  const auto refused = [](const LossTerm& term, const std::string& graph = kInner) {
    const Error error = Refused(graph, {term});
    EXPECT_EQ(error.code(), ErrorCode::kConfig) << error.Describe();
    return error.message();
  };
  ExpectHas(refused({.type = "cross_entropy", .output = "z", .label_smoothing = 1.5}), "label_smoothing must be from 0 to 1, got 1.5");
  ExpectHas(refused({.type = "cross_entropy", .output = "z", .label_smoothing = std::nan("")}), "label_smoothing must be from 0 to 1");
  ExpectHas(refused({.type = "smooth_l1", .output = "z", .beta = -1}), "beta must be at least 0, got -1");
  ExpectHas(refused({.type = "huber", .output = "z", .delta = 0}), "delta must be above 0, got 0");
  ExpectHas(refused({.type = "quantile", .output = "z", .quantile = 1.5}), "q must be from 0 to 1, got 1.5");
  ExpectHas(refused({.type = "sigmoid_focal", .output = "z", .alpha = 2}), "alpha must be at most 1, got 2");
  ExpectHas(refused({.type = "sigmoid_focal", .output = "z", .gamma = -1}), "gamma must be at least 0, got -1");
  const std::string weights = "got 3 values of pos_weight for the output ";
  ExpectHas(refused({.type = "bce_with_logits", .output = "z", .pos_weight = {1, 2, 3}}), weights + "'z' [2,2]");
  ExpectHas(refused({.type = "bce_with_logits", .output = "column", .pos_weight = {1, 2, 3}}, kColumn), weights + "'column' [2,1]");
}

// The mean of 16,384 rows whose sum is more than the largest float16.
TEST(AddLoss, OnnxMeansOf16BitScores) {
  for (const char* loss : {"SoftmaxCrossEntropyLoss (z, y)", "NegativeLogLikelihoodLoss (z, y)"}) {
    Session session = SessionOf(
        "g (float16[N, 2, 8192] x, int64[N, 8192] y) => (float16 loss) <float[1, 2, 1] w = {2, 1}> "
        "{ half = Cast <to = 10> (w) z = Mul (x, half) loss = " +
            std::string(loss) + " }",
        {{.type = "output", .output = "loss"}}, 2);
    std::vector<float> scores(32768, 0);
    for (size_t i = 0; i < scores.size(); ++i) scores[i] = i / 8192 % 2 == 0 ? 5.0f : -10.0f;
    const Tensor x = Converted(Tensor::From<float>(scores, Shape{2, 2, 8192}).view(), DType::kFloat16);
    Tensor y(DType::kInt64, Shape{2, 8192});
    for (int64_t& label : y.as<int64_t>()) label = 1;
    EXPECT_NEAR(session.Step({{"x", x.view()}, {"y", y.view()}}).loss, loss[0] == 'S' ? 20 : 10, 0.02) << loss;
    EXPECT_NEAR(ElementAsDouble(session.Fetched("grad/w"), 1), 10, 0.02) << loss;
  }
}

// 131,072 elements: more than the largest float16.
TEST(AddLoss, CountsElementsOf16BitOutputs) {
  Session session = SessionOf(
      "g (float16[N, 65536] x) => (float16[N, 65536] z) <float[1] w = {2}> "
      "{ half = Cast <to = 10> (w) z = Mul (x, half) }",
      {{.type = "mse", .output = "z"}}, 2);
  const Tensor x = Converted(Tensor::From<float>(std::vector<float>(131072, 1), Shape{2, 65536}).view(), DType::kFloat16);
  const Tensor target(DType::kFloat16, Shape{2, 65536});
  EXPECT_EQ(session.Step({{"x", x.view()}, {"target", target.view()}}).loss, 4);
}

}  // namespace
}  // namespace gradloom
