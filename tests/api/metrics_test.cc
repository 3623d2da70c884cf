// How metrics and mean losses of the C++ interface read outputs and targets.
#include <gradloom/gradloom.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/api/housing.h"

namespace {

// The only evaluation of the session as it is: the learning rate is 0.
std::map<std::string, double> Evaluated(const gradloom::Plan& plan, const gradloom::Dataset& data,
                                        const std::vector<std::string>& metrics) {
  gradloom::Trainer trainer(plan, {.train = data, .eval = data, .batch = 8, .metrics = metrics});
  std::map<std::string, double> values;
  trainer.Fit({.on_evaluation = [&](const gradloom::Evaluation& e) {
    values = e.values;
    return true;
  }});
  return values;
}

double AccuracyOf(const gradloom::Plan& plan, const gradloom::Dataset& data, const std::string& metric) {
  return Evaluated(plan, data, {metric}).at("accuracy");
}

// The loss tells what the output is: a probability above 0.5 means yes.
TEST(Trainer, ReadsProbabilitiesLikeTheLoss) {
  const auto model =
      ModelOfText("sigmoid", "g (float[N, 1] x) => (float[N, 1] p) <float[1, 1] w = {1}> { h = MatMul (x, w)  p = Sigmoid (h) }");
  const std::vector<float> x = {-2, -1, 1, 2}, y = {0, 0, 1, 1};
  const gradloom::Dataset data(gradloom::Feeds{{"x", TensorView(x.data(), {4, 1})}, {"y", TensorView(y.data(), {4, 1})}});
  const auto compile = [&](const gradloom::Loss& loss) {
    return gradloom::Compile(model, {.loss = loss, .optimizer = gradloom::Sgd{.lr = 0}, .batch = 4});
  };
  EXPECT_EQ(AccuracyOf(compile(gradloom::Loss::Bce("p", "y")), data, "accuracy(p, y)"), 1);
  EXPECT_EQ(AccuracyOf(compile(gradloom::Loss::Bce("p", "y") * 0.5), data, "accuracy(p, y)"), 1);
  // Whatever the order of several losses, one of numbers does not decide.
  EXPECT_EQ(AccuracyOf(compile(gradloom::Loss::Mse("p", "y") + gradloom::Loss::Bce("p", "y")), data, "accuracy(p, y)"), 1);
  // Of a number, above 0 means yes.
  EXPECT_EQ(AccuracyOf(compile(gradloom::Loss::Mse("p", "y")), data, "accuracy(p, y)"), 0.5);
}

// As the command takes them.
TEST(Trainer, MetricsCompareWhatTheLossCompares) {
  const auto model = ModelOfText("line", "g (float[N, 1] x) => (float[N, 1] p) <float[1, 1] w = {1}> { p = MatMul (x, w) }");
  const gradloom::Plan plan =
      gradloom::Compile(model, {.loss = gradloom::Loss::Mse("p", "y"), .optimizer = gradloom::Sgd{.lr = 0}, .batch = 4});
  const std::vector<float> x = {-2, -1, 1, 2}, price = {24, 25, 26, 27}, yes = {0, 0, 1, 1};
  const auto data = [&](const std::vector<float>& y) {
    return gradloom::Dataset(gradloom::Feeds{{"x", TensorView(x.data(), {4, 1})}, {"y", TensorView(y.data(), {4, 1})}});
  };
  EXPECT_EQ(Evaluated(plan, data(price), {"rmse"}), Evaluated(plan, data(price), {"rmse(p, y)"}));
  EXPECT_EQ(AccuracyOf(plan, data(yes), "accuracy"), 1);
  // Prices are neither yes nor no.
  EXPECT_THROW(Evaluated(plan, data(price), {"accuracy"}), gradloom::Error);
}

TEST(Trainer, MetricsLeaveOutTheIgnoredClass) {
  const auto model = ModelOfText("scores", "g (float[N, 2] x) => (float[N, 2] s) <float[2, 2] w = {1, 0, 0, 1}> { s = MatMul (x, w) }");
  const gradloom::Plan plan =
      gradloom::Compile(model, {.loss = gradloom::Loss::CrossEntropy("s", "y"), .optimizer = gradloom::Sgd{.lr = 0}, .batch = 4});
  const std::vector<float> x = {1, 0, 0, 1, 1, 0, 0, 1};
  const std::vector<int64_t> y = {0, -100, -100, 1};
  const gradloom::Dataset data(gradloom::Feeds{{"x", TensorView(x.data(), {4, 2})}, {"y", TensorView(y.data(), {4})}});
  EXPECT_EQ(AccuracyOf(plan, data, "accuracy(s, y)"), 1);
}

// How an output is read is known from its own loss only; of another output of the same target, scores below 0 and above 1 are no
// probabilities.
TEST(Trainer, MetricsReadAnotherOutputByItself) {
  const auto classes = ModelOfText("two", R"(g (float[N, 2] x) => (float[N, 2] p, float[N, 2] s) <float[2, 2] w = {1, 0, 0, 1}>
{ s = MatMul (x, w)  p = Softmax (s) })");
  const std::vector<float> x = {-1, -2, -4, -3, 2, 1};
  const std::vector<int64_t> label = {0, 1, 0};
  const gradloom::Dataset data(gradloom::Feeds{{"x", TensorView(x.data(), {3, 2})}, {"y", TensorView(label.data(), {3})}});
  const gradloom::Plan plan = CompiledWith(classes, "cross_entropy_of_probabilities(p, y)");
  EXPECT_EQ(AccuracyOf(plan, data, "accuracy(s, y)"), 1);
  const double perplexity = Evaluated(plan, data, {"perplexity(s, y)"}).at("perplexity");
  EXPECT_NEAR(Evaluated(plan, data, {"perplexity(p, y)"}).at("perplexity"), perplexity, 1e-5);

  const auto binary = ModelOfText("two_binary", R"(g (float[N, 1] x) => (float[N, 1] p, float[N, 1] s) <float[1, 1] w = {1}>
{ s = MatMul (x, w)  p = Sigmoid (s) })");
  const std::vector<float> numbers = {-0.2F, 0.2F, 0.3F}, yes = {0, 1, 1};
  const gradloom::Dataset answers(gradloom::Feeds{{"x", TensorView(numbers.data(), {3, 1})}, {"y", TensorView(yes.data(), {3, 1})}});
  EXPECT_EQ(AccuracyOf(CompiledWith(binary, "bce(p, y)"), answers, "accuracy(s, y)"), 1);
}

// The class of one-hot and soft labels is the one with the largest probability.
TEST(Trainer, MetricsOfProbabilitiesPerClass) {
  const auto model = ModelOfText("soft", R"(g (float[N, 3] x) => (float[N, 3] p, float[N, 3] s, float[N, 3] l)
<float[3, 3] w = {1, 0, 0, 0, 1, 0, 0, 0, 1}> { s = MatMul (x, w)  p = Softmax (s)  l = LogSoftmax (s) })");
  const std::vector<float> x = {3, 2, 1, -2, -1, -3, 1, 2, 3, 1, 2, 3};
  const std::vector<float> y = {0.4F, 0.3F, 0.3F, 0, 1, 0, 0, 0, 1, 1, 0, 0};
  const gradloom::Dataset data(gradloom::Feeds{{"x", TensorView(x.data(), {4, 3})}, {"y", TensorView(y.data(), {4, 3})}});
  for (const std::string loss :
       {"cross_entropy(s, y, probabilities=true)", "cross_entropy_of_probabilities(p, y, probabilities=true)", "kl_div(l, y)"}) {
    const gradloom::Plan plan = CompiledWith(model, loss);
    for (const std::string output : {"s", "p"}) {
      EXPECT_EQ(AccuracyOf(plan, data, "accuracy(" + output + ", y)"), 0.75) << loss << " " << output;
      EXPECT_EQ(Evaluated(plan, data, {"top3(" + output + ", y)"}).at("top3"), 1) << loss << " " << output;
    }
    // A threshold means yes or no for each element: here all are no, and 3 of the 12 labels are yes.
    EXPECT_NEAR(AccuracyOf(plan, data, "accuracy(p, y, threshold=1)"), 9.0 / 12, 1e-9);
  }
}

TEST(Trainer, MetricsThatDifferInOptions) {
  const auto model = ModelOfText("options", "g (float[N, 1] x) => (float[N, 1] s) <float[1, 1] w = {1}> { s = MatMul (x, w) }");
  const std::vector<float> x = {0.1F, 0.4F, 0.6F, 0.9F}, y = {0, 1, 1, 1};
  const gradloom::Dataset data(gradloom::Feeds{{"x", TensorView(x.data(), {4, 1})}, {"y", TensorView(y.data(), {4, 1})}});
  const std::map<std::string, double> values = Evaluated(
      CompiledWith(model, "mse(s, y)"), data,
      {"recall(s, y)", "recall(s, y, threshold=0.5)", "recall(s, y, threshold=0.8)", "recall(s, y, threshold=0.50)", "mae(s, y)"});
  EXPECT_EQ(values.size(), 5U);  // with the loss and mae
  EXPECT_EQ(values.at("recall"), 1);
  EXPECT_NEAR(values.at("recall/threshold=0.5"), 2.0 / 3, 1e-9);
  EXPECT_NEAR(values.at("recall/threshold=0.8"), 1.0 / 3, 1e-9);
}

TEST(Trainer, MetricsHaveTheClassAxisOfTheLoss) {
  Sequence sequence;
  const gradloom::Plan plan = CompiledWith(sequence.model, "cross_entropy(s, y, class_axis=-1)");
  EXPECT_EQ(AccuracyOf(plan, sequence.data(), "accuracy(s, y)"), 1);
  // The metric's own option comes first.
  EXPECT_LT(AccuracyOf(plan, sequence.data(), "accuracy(s, y, class_axis=1)"), 1);
  EXPECT_LT(AccuracyOf(CompiledWith(sequence.model, "cross_entropy(s, y)"), sequence.data(), "accuracy(s, y)"), 1);
}

TEST(Trainer, MetricsIgnoreTheClassThatTheLossIgnores) {
  Sequence sequence;
  // Wrong at every position of class 0.
  for (size_t i = 0; i < sequence.y.size(); ++i) {
    if (sequence.y[i] == 0) sequence.x[i * 3 + 2] = 2;
  }
  const gradloom::Plan plan = CompiledWith(sequence.model, "cross_entropy(s, y, class_axis=-1, ignore_index=0)");
  EXPECT_EQ(AccuracyOf(plan, sequence.data(), "accuracy(s, y)"), 1);
  EXPECT_LT(AccuracyOf(plan, sequence.data(), "accuracy(s, y, ignore_index=5)"), 1);
  EXPECT_LT(AccuracyOf(CompiledWith(sequence.model, "cross_entropy(s, y, class_axis=-1)"), sequence.data(), "accuracy(s, y)"), 1);
}

// Some exporters put the loss into the model. Its operator then tells how the label is read.
TEST(Trainer, MetricsReadALossThatTheModelComputes) {
  Sequence sequence;
  const std::string graph = R"(g (float[N, 3, 3] x, int64[N, 3] y) => (float[N, 3, 3] s, float loss) <
  float[3, 3] w = {1, 0, 0, 0, 1, 0, 0, 0, 1}, int64[2] rows = {-1, 3}, int64[1] flat = {-1}>
{
  s = MatMul (x, w)
  z = Reshape (s, rows)
  l = Reshape (y, flat)
  loss = SoftmaxCrossEntropyLoss <ignore_index = 0> (z, l)
})";
  for (size_t i = 0; i < sequence.y.size(); ++i) {
    if (sequence.y[i] == 0) sequence.x[i * 3 + 2] = 2;
  }
  EXPECT_EQ(AccuracyOf(CompiledWith(ModelOfText("inside", graph), "output(loss)"), sequence.data(), "accuracy(s, y)"), 1);
}

// A plan whose losses say nothing of the target: the shapes show the classes' axis, or the message says how to name it.
TEST(Trainer, MetricsThatNoLossExplains) {
  const auto model =
      ModelOfText("other", R"(g (float[N, 2, 3] x) => (float[N, 2, 3] s, float[N, 2, 3] r) <float[3, 3] w = {1, 0, 0, 0, 1, 0, 0, 0, 1}>
{ s = MatMul (x, w)  r = Relu (s) })");
  const gradloom::Plan plan = CompiledWith(model, "mse(r, t)");
  const std::vector<float> x = {1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0};
  const std::vector<int64_t> y = {0, 1, 2, 0}, odd = {0, 1, 2, 0, 1, 2};
  const auto data = [&](const std::vector<int64_t>& labels) {
    return gradloom::Dataset(gradloom::Feeds{{"x", TensorView(x.data(), {2, 2, 3})},
                                             {"t", TensorView(x.data(), {2, 2, 3})},
                                             {"y", TensorView(labels.data(), {2, std::ssize(labels) / 2})}});
  };
  EXPECT_EQ(AccuracyOf(plan, data(y), "accuracy(s, y)"), 1);
  try {
    AccuracyOf(plan, data(odd), "accuracy(r, y, class_axis=2)");
    ADD_FAILURE();
  } catch (const gradloom::Error& error) {
    EXPECT_NE(error.help().find("accuracy(r, y, class_axis=-1)"), std::string::npos) << error.help();
  }
  EXPECT_THROW(AccuracyOf(plan, data(y), "accuracy(s, y, axis=2)"), gradloom::Error);
  EXPECT_THROW(AccuracyOf(plan, data(y), "accuracy(s, y, class_axis=last)"), gradloom::Error);
}

// The losses of training and of evaluation of an epoch with this batch size. With a learning rate of 0 they do not depend on it.
std::pair<double, double> MeanLosses(const gradloom::Plan& plan, const gradloom::Dataset& data, int64_t batch) {
  gradloom::Trainer trainer(plan, {.train = data, .eval = data, .batch = batch});
  double evaluated = -1;
  const auto fitted = trainer.Fit({.on_evaluation = [&](const gradloom::Evaluation& e) {
    evaluated = e.values.at("loss");
    return true;
  }});
  return {fitted.train_loss, evaluated};
}

// The mean over batches of which some have more weight than others must be the mean over all rows.
void ExpectMeanOverAllRows(const gradloom::Plan& plan, const gradloom::Dataset& data) {
  const auto whole = MeanLosses(plan, data, 8), parts = MeanLosses(plan, data, 3);
  EXPECT_NEAR(parts.first, whole.first, 1e-5);
  EXPECT_NEAR(parts.second, whole.second, 1e-5);
}

TEST(Trainer, MeanLossCountsClassWeights) {
  const auto model = ModelOfText("weighted", "g (float[N, 2] x) => (float[N, 2] s) <float[2, 2] w = {1, 0, 0, 1}> { s = MatMul (x, w) }");
  const std::vector<float> x = {3, 0, 0, 2, 1, 0, 0, 1, 2, 2, 0, 4, 1, 3, 0, 0};
  const std::vector<int64_t> y = {0, 0, 0, 0, 1, 1, 1, -100};
  const gradloom::Dataset data(gradloom::Feeds{{"x", TensorView(x.data(), {8, 2})}, {"y", TensorView(y.data(), {8})}});
  ExpectMeanOverAllRows(CompiledWith(model, "cross_entropy(s, y, class_weight=0.25:4)"), data);
}

// The same for a model that casts the labels it is fed, and computes its loss.
TEST(Trainer, MeanLossOfLabelsThatTheModelCasts) {
  const auto model = ModelOfText("casts", R"(g (float[N, 2] x, float[N] y) => (float loss, float[N, 2] s) <float[2, 2] w = {1, 0, 0, 1}>
{ s = MatMul (x, w)  c = Cast <to = 7> (y)  loss = SoftmaxCrossEntropyLoss <ignore_index = 5> (s, c) })");
  const std::vector<float> x = {3, 0, 0, 2, 1, 0, 0, 1, 2, 2, 0, 4, 1, 3, 0, 0}, y = {0, 0, 5, 0, 1, 5, 1, 5};
  const gradloom::Dataset data(gradloom::Feeds{{"x", TensorView(x.data(), {8, 2})}, {"y", TensorView(y.data(), {8})}});
  ExpectMeanOverAllRows(CompiledWith(model, "output(loss)"), data);
}

}  // namespace
