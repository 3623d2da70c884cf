#include "tests/ops/case_list.h"

namespace gradloom {
namespace {

constexpr int64_t kIgnored = 2;

OpOperand Labels(const std::vector<int64_t>& labels, Shape shape) { return Fed(Tensor::From(labels, std::move(shape))); }

OpOperand LogProbabilities(Shape shape) { return In(std::move(shape), -4, -0.1); }

void AddOwn(std::vector<OpCase>& cases) {
  const OpOperand labels = Labels({0, 3, 2, 2, 1}, {5}), weights = Fixed({0.5, 2, 1, 0}, {4});
  for (const OpOperand& weight : {Absent(), weights}) {
    for (double smoothing : {0.0, 0.1}) {
      for (int64_t ignored : {int64_t{-100}, kIgnored}) {
        cases.push_back(
            {"CrossEntropy", {In({5, 4}), labels, weight}, {{"label_smoothing", smoothing}, {"ignore_index", ignored}}, "gradloom", 3});
      }
    }
    cases.push_back({"Nll", {LogProbabilities({5, 4}), labels, weight}, {}, "gradloom", 2});
    cases.push_back({"Nll", {LogProbabilities({5, 4}), labels, weight}, {{"ignore_index", kIgnored}}, "gradloom", 2});
  }
  cases.push_back({"CrossEntropy", {In({3, 1}), Labels({0, 0, 0}, {3})}, {}, "gradloom", 3, "one class"});
  cases.push_back({"CrossEntropy", {Fed({-1e4, 1e4, 0}, {1, 3}), Labels({1}, {1})}, {}, "gradloom", 3, "no overflow"});
  cases.push_back({"CrossEntropy", {In({2, 3}), Labels({-100, -100}, {2})}, {}, "gradloom", 3, "all ignored"});
  cases.push_back({.op = "CrossEntropyGrad",
                   .operands = {LogProbabilities({5, 4}), labels, weights, In({5})},
                   .attributes = {{"label_smoothing", 0.2}},
                   .domain = "gradloom",
                   .gradient = false});
  // With 16-bit scores, the other operands are float32.
  for (bool weighted : {false, true}) {
    const OpOperand weight = weighted ? weights : Absent();
    const Attributes attributes{{"label_smoothing", weighted ? 0.2 : 0.0}, {"ignore_index", kIgnored}};
    cases.push_back({.op = "CrossEntropyLogSum",
                     .operands = {In({5, 4}), labels, weight},
                     .attributes = attributes,
                     .domain = "gradloom",
                     .outputs = 3,
                     .gradient = false,
                     .half = false});
    cases.push_back({.op = "CrossEntropyLogSumGrad",
                     .operands = {In({5, 4}), In({5}), labels, weight, In({5})},
                     .attributes = attributes,
                     .domain = "gradloom",
                     .gradient = false,
                     .half = false});
    for (const Shape& upstream : {Shape{}, Shape{5}}) {
      cases.push_back({.op = "CrossEntropyTraining",
                       .operands = {In({5, 4}), labels, weight, In(upstream)},
                       .attributes = attributes,
                       .domain = "gradloom",
                       .outputs = 2,
                       .gradient = false,
                       .half = false});
    }
    cases.push_back({.op = "LabelWeights",
                     .operands = {labels, weight},
                     .attributes = {{"ignore_index", kIgnored}, {"to", static_cast<int64_t>(DType::kFloat32)}},
                     .domain = "gradloom",
                     .gradient = false});
  }
  // Rows of one thread, a warp and blocks.
  for (int64_t classes : {1, 40, 1500, 9000}) {
    cases.push_back({.op = "CrossEntropyTraining",
                     .operands = {In({3, classes}), Labels({0, classes - 1, classes / 2}, {3}), Absent(), In({})},
                     .domain = "gradloom",
                     .outputs = 2,
                     .gradient = false,
                     .half = false});
  }
  cases.push_back({.op = "NllGrad",
                   .operands = {labels, Absent(), In({})},
                   .attributes = {{"classes", int64_t{4}}},
                   .domain = "gradloom",
                   .gradient = false});
}

void AddOnnx(std::vector<OpCase>& cases) {
  const OpOperand labels = Labels({0, 3, 2, 1, 2, 0}, {2, 3}), weights = Fixed({0.5, 2, 1, 0.25}, {4});
  for (const char* reduction : {"none", "sum", "mean"}) {
    for (const OpOperand& weight : {Absent(), weights}) {
      const Attributes plain{{"reduction", std::string(reduction)}};
      const Attributes ignoring{{"reduction", std::string(reduction)}, {"ignore_index", kIgnored}};
      for (const Attributes& attributes : {plain, ignoring}) {
        cases.push_back({"NegativeLogLikelihoodLoss", {LogProbabilities({2, 4, 3}), labels, weight}, attributes});
        cases.push_back({"SoftmaxCrossEntropyLoss", {In({2, 4, 3}), labels, weight}, attributes, "", 2});
      }
    }
    cases.push_back({"SoftmaxCrossEntropyLoss", {In({3, 4}), Labels({1, 0, 3}, {3})}, {{"reduction", std::string(reduction)}}});
    cases.push_back({"NegativeLogLikelihoodLoss",
                     {LogProbabilities({2, 3, 2, 2}), Labels({1, 0, 2, 1, 0, 0, 1, 2}, {2, 2, 2})},
                     {{"reduction", std::string(reduction)}}});
  }
}

}  // namespace

std::vector<OpCase> LossCases() {
  std::vector<OpCase> cases;
  AddOwn(cases);
  AddOnnx(cases);
  return cases;
}

}  // namespace gradloom
