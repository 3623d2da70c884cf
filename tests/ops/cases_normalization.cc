#include "tests/ops/case_list.h"

namespace gradloom {
namespace {

constexpr int64_t kOne = 1;

OpOperand Seed(int64_t value) { return Fed(Tensor::Scalar<int64_t>(value)); }

void AddBatchNormalization(std::vector<OpCase>& cases) {
  for (const Shape& x : {Shape{4, 3}, Shape{2, 3, 5}, Shape{2, 3, 2, 4}, Shape{2, 2, 2, 2, 2}}) {
    const Shape channels{x[1]};
    cases.push_back({"BatchNormalization", {In(x), In(channels), In(channels), In(channels), In(channels, 0.5, 2)}});
    cases.push_back({"BatchNormTrain", {In(x), In(channels), In(channels)}, {{"epsilon", 1e-3}}, "gradloom", 4});
  }
  cases.push_back({.op = "BatchNormalization",
                   .operands = {In({4, 3}), In({3}), In({3}), In({3}), In({3}, 0.5, 2)},
                   .attributes = {{"training_mode", kOne}, {"momentum", 0.75}},
                   .outputs = 3,
                   .gradient = false});
  cases.push_back({"BatchNormTrain", {In({1, 2, 3}), In({2}), In({2})}, {}, "gradloom", 4, "one image"});
  for (const Shape& x : {Shape{4, 3}, Shape{2, 3, 2, 4}}) {
    const Shape channels{x[1]};
    cases.push_back({.op = "BatchNormLine",
                     .operands = {In(x), In(channels), In(channels)},
                     .attributes = {{"epsilon", 1e-3}},
                     .domain = "gradloom",
                     .outputs = 6,
                     .gradient = false});
  }
  cases.push_back({.op = "BatchNormTrainGrad",
                   .operands = {In({2, 3, 4}), In({2, 3, 4}), In({3}), In({3}), In({3}, 0.5, 2)},
                   .domain = "gradloom",
                   .outputs = 3,
                   .gradient = false});
}

void AddLayerNormalization(std::vector<OpCase>& cases) {
  cases.push_back({"LayerNormalization", {In({3, 5}), In({5}), In({5})}});
  cases.push_back({"LayerNormalization", {In({2, 3, 4}), In({4})}, {{"epsilon", 1e-2}}});
  cases.push_back({"LayerNormalization", {In({2, 3, 4}), In({3, 4}), In({3, 4})}, {{"axis", kOne}}});
  cases.push_back({"LayerNormalization", {In({2, 3, 4}), In({1, 4}), In({})}, {{"axis", kOne}}, "", 1, "broadcast"});
  // The statistics are float32 for any input type, so a float64 loss cannot add them to the output.
  cases.push_back({.op = "LayerNormalization",
                   .operands = {In({2, 3}), In({2, 3}), In({2, 3})},
                   .attributes = {{"axis", int64_t{-2}}},
                   .outputs = 3,
                   .gradient = false});
  cases.push_back({"RMSNormalization", {In({3, 5}), In({5})}});
  cases.push_back({"RMSNormalization", {In({2, 3, 4}), In({3, 4})}, {{"axis", kOne}, {"epsilon", 1e-2}}});
  cases.push_back({"RMSNormalization", {In({2, 3, 4}), In({3, 1})}, {{"axis", kOne}}, "", 1, "broadcast"});
  cases.push_back(
      {.op = "LayerNormGrad", .operands = {In({3, 5}), In({3, 5}), In({5})}, .domain = "gradloom", .outputs = 3, .gradient = false});
  cases.push_back(
      {.op = "RmsNormGrad", .operands = {In({3, 5}), In({3, 5}), In({5})}, .domain = "gradloom", .outputs = 2, .gradient = false});
}

void AddGroups(std::vector<OpCase>& cases) {
  cases.push_back({"InstanceNormalization", {In({2, 3, 5}), In({3}), In({3})}});
  cases.push_back({"InstanceNormalization", {In({4, 3}), In({3}), In({3})}, {}, "", 1, "single points"});
  cases.push_back({"InstanceNormalization", {In({2, 2, 3, 4}), In({2}), In({2})}, {{"epsilon", 1e-2}}});
  for (int64_t groups : {1, 2, 4}) {
    cases.push_back({"GroupNormalization", {In({2, 4, 3}), In({4}), In({4})}, {{"num_groups", groups}}});
  }
  cases.push_back({"GroupNormalization", {In({2, 6, 2, 2}), In({6}), In({6})}, {{"num_groups", int64_t{3}}, {"epsilon", 1e-3}}});
  cases.push_back({.op = "GroupNormGrad",
                   .operands = {In({2, 4, 3}), In({2, 4, 3}), In({4})},
                   .attributes = {{"num_groups", int64_t{2}}},
                   .domain = "gradloom",
                   .outputs = 3,
                   .gradient = false});
}

void AddResponses(std::vector<OpCase>& cases) {
  for (int64_t size : {1, 2, 3, 5}) {
    cases.push_back({"LRN", {In({2, 6, 2, 2})}, {{"size", size}, {"alpha", 0.5}, {"beta", 0.75}, {"bias", 1.5}}});
  }
  cases.push_back({"LRN", {In({2, 3, 4})}, {{"size", int64_t{7}}, {"alpha", 2.0}}, "", 1, "window wider than the channels"});
  cases.push_back({.op = "LrnGrad",
                   .operands = {In({2, 3, 4}), In({2, 3, 4})},
                   .attributes = {{"size", int64_t{3}}, {"alpha", 0.5}},
                   .domain = "gradloom",
                   .gradient = false});
  cases.push_back({"MeanVarianceNormalization", {In({2, 3, 2, 4})}});
  cases.push_back({"MeanVarianceNormalization", {In({2, 3, 4})}, {{"axes", std::vector<int64_t>{-1}}}});
  for (int64_t p : {1, 2}) {
    cases.push_back({"LpNormalization", {In({3, 4})}, {{"p", p}}});
    cases.push_back({"LpNormalization", {In({2, 3, 4}, 0.5, 2)}, {{"p", p}, {"axis", kOne}}});
  }
}

}  // namespace

std::vector<OpCase> NormalizationCases() {
  std::vector<OpCase> cases;
  AddBatchNormalization(cases);
  AddLayerNormalization(cases);
  AddGroups(cases);
  AddResponses(cases);
  return cases;
}

std::vector<OpCase> SoftmaxCases() {
  std::vector<OpCase> cases;
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    cases.push_back({op, {In({3, 5})}});
    cases.push_back({op, {In({2, 3, 4})}, {{"axis", kOne}}});
    cases.push_back({op, {In({2, 3, 4})}, {{"axis", int64_t{-3}}}});
    cases.push_back({op, {Fed({-1e4, 1e4, 0, 9999}, {1, 4})}, {}, "", 1, "no overflow"});
    cases.push_back({op, {In({3, 1})}, {}, "", 1, "one class"});
  }
  for (int64_t axis : {0, 1, -1}) {
    cases.push_back({.op = "Hardmax", .operands = {Distinct({3, 4})}, .attributes = {{"axis", axis}}, .gradient = false});
  }
  cases.push_back({.op = "Hardmax", .operands = {Fed({1, 3, 3, 2}, {2, 2})}, .note = "ties", .gradient = false});
  return cases;
}

std::vector<OpCase> RandomCases() {
  std::vector<OpCase> cases;
  for (double ratio : {0.0, 0.3, 0.9}) {
    cases.push_back({"Dropout", {In({5, 7}), Seed(3), Seed(8)}, {{"ratio", ratio}, {"origin", int64_t{17}}}, "gradloom", 2});
  }
  const Attributes drawn{{"shape", std::vector<int64_t>{3, 5}}, {"dtype", kOne}, {"origin", int64_t{5}}};
  for (const char* op : {"RandomUniform", "RandomNormal"}) {
    cases.push_back(
        {.op = op, .operands = {Seed(1), Seed(2)}, .attributes = drawn, .domain = "gradloom", .gradient = false, .half = false});
    cases.push_back({.op = op, .attributes = {{"shape", std::vector<int64_t>{4}}, {"dtype", kOne}}, .gradient = false, .half = false});
    cases.push_back({.op = std::string(op) + "Like", .operands = {In({2, 3})}, .gradient = false});
  }
  cases.push_back(
      {.op = "Bernoulli", .operands = {In({4, 4}, 0, 1), Seed(1), Seed(2)}, .domain = "gradloom", .gradient = false, .half = false});
  cases.push_back({.op = "Bernoulli", .operands = {In({4, 4}, 0, 1)}, .gradient = false, .half = false});
  cases.push_back({.op = "Multinomial",
                   .operands = {In({2, 4}), Seed(1), Seed(2)},
                   .attributes = {{"sample_size", int64_t{6}}},
                   .domain = "gradloom",
                   .gradient = false,
                   .half = false});
  cases.push_back(
      {.op = "Multinomial", .operands = {In({2, 4})}, .attributes = {{"sample_size", int64_t{6}}}, .gradient = false, .half = false});
  return cases;
}

}  // namespace gradloom
