// Compares the catalog's list of data checks with the kernels: each operator of the list rejects a number outside its limits and accepts
// the limits themselves, and a gradient checks no more than its forward operator.
#include "kernels/catalog/data_checks.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "kernels/reference/reference.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

Tensor Floats(Shape shape, float value = 0.5F) {
  Tensor tensor(DType::kFloat32, std::move(shape));
  for (float& element : tensor.as<float>()) element = value;
  return tensor;
}
Tensor Ints(Shape shape, int64_t value) {
  Tensor tensor(DType::kInt64, std::move(shape));
  for (int64_t& element : tensor.as<int64_t>()) element = value;
  return tensor;
}

struct Case {
  std::string op, domain;
  Attributes attributes;
  std::vector<Tensor> inputs;  // all elements of input `looked_at` are replaced
  std::vector<Shape> outputs;  // float32
  std::vector<int64_t> taken, refused;
  DataCheck::Kind kind = DataCheck::Kind::kIndex;
  std::string forward;  // for a gradient: the forward case that has already checked the same data
};

size_t LookedAt(const Case& c) {
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (c.inputs[i].dtype() == DType::kInt64) return i;
  }
  return 0;
}

KernelCall CallOf(const Case& c) {
  KernelCall call{.op = c.op, .domain = c.domain, .attributes = c.attributes, .inputs = {}, .outputs = {}};
  for (const Tensor& input : c.inputs) call.inputs.push_back({input.dtype(), input.shape(), {}});
  for (const Shape& output : c.outputs) call.outputs.push_back({DType::kFloat32, output, {}});
  return call;
}

using Kind = DataCheck::Kind;

std::vector<Case> Cases() {
  const std::string own = "gradloom";
  const Tensor table = Floats({3, 4}), square = Floats({3, 3}), scores = Floats({2, 5});
  const Attributes rows{{"axis", int64_t{0}}};
  Attributes grad{{"axis", int64_t{0}}, {"shape", std::vector<int64_t>{3, 4}}},
      tuples{{"batch_dims", int64_t{0}}, {"shape", std::vector<int64_t>{3, 3}}};
  const std::vector<int64_t> in_3{-3, 2}, past_3{-4, 3}, labels{0, 4, -100}, no_labels{5, -1};
  return {
      {"Gather", "", rows, {table, Ints({2}, 0)}, {{2, 4}}, in_3, past_3},
      {"GatherGrad", own, grad, {Ints({2}, 0), Floats({2, 4})}, {{3, 4}}, in_3, past_3, Kind::kIndex, "Gather"},
      {"GatherElements", "", rows, {table, Ints({2, 4}, 0)}, {{2, 4}}, in_3, past_3},
      {"ScatterElements", "", rows, {table, Ints({2, 4}, 0), Floats({2, 4})}, {{3, 4}}, in_3, past_3},
      {"GatherND", "", {}, {square, Ints({2, 2}, 0)}, {{2}}, in_3, past_3},
      {"GatherNDGrad", own, tuples, {Ints({2, 2}, 0), Floats({2})}, {{3, 3}}, in_3, past_3, Kind::kIndex, "GatherND"},
      {"ScatterND", "", {}, {square, Ints({2, 2}, 0), Floats({2})}, {{3, 3}}, in_3, past_3},
      {"CrossEntropy", own, {}, {scores, Ints({2}, 0)}, {{}, {}, {2, 5}}, labels, no_labels, Kind::kLabel},
      {"CrossEntropyGrad",
       own,
       {},
       {scores, Ints({2}, 0), Tensor(), Floats({})},
       {{2, 5}},
       labels,
       no_labels,
       Kind::kLabel,
       "CrossEntropy"},
      {"CrossEntropyLogSum", own, {}, {scores, Ints({2}, 0)}, {{}, {}, {2}}, labels, no_labels, Kind::kLabel},
      {"CrossEntropyLogSumGrad",
       own,
       {},
       {scores, Floats({2}), Ints({2}, 0), Tensor(), Floats({})},
       {{2, 5}},
       labels,
       no_labels,
       Kind::kLabel,
       "CrossEntropyLogSum"},
      {"CrossEntropyTraining",
       own,
       {},
       {scores, Ints({2}, 0), Tensor(), Floats({})},
       {{}, {2, 5}},
       labels,
       no_labels,
       Kind::kLabel,
       "CrossEntropy"},
      {"Nll", own, {}, {scores, Ints({2}, 0)}, {{}, {}}, labels, no_labels, Kind::kLabel},
      {"NllGrad", own, {}, {Ints({2}, 0), Tensor(), Floats({})}, {{2, 5}}, labels, no_labels, Kind::kLabel, "Nll"},
      {"NegativeLogLikelihoodLoss", "", {}, {scores, Ints({2}, 0)}, {{}}, {0, 4}, {5, -1, -100}, Kind::kLabel},
      {"SoftmaxCrossEntropyLoss", "", {}, {scores, Ints({2}, 0)}, {{}}, {0, 4}, {5, -1, -100}, Kind::kLabel},
      {"ReverseSequence", "", {}, {Floats({3, 2}), Ints({2}, 0)}, {{3, 2}}, {0, 3}, {-1, 4}, Kind::kLength},
      {"RoiAlign", "", {}, {Floats({2, 1, 4, 4}), Floats({1, 4}), Ints({1}, 0)}, {{1, 1, 1, 1}}, {0, 1}, {-1, 2}, Kind::kPlace},
      {"RoiAlignGrad",
       own,
       {},
       {Floats({2, 1, 4, 4}), Floats({1, 4}), Ints({1}, 0), Floats({1, 1, 1, 1})},
       {{2, 1, 4, 4}},
       {0, 1},
       {-1, 2},
       Kind::kPlace,
       "RoiAlign"},
      {"TensorScatter", "", {}, {Floats({1, 5, 2}), Floats({1, 2, 2}), Ints({1}, 0)}, {{1, 5, 2}}, {0, 3}, {-1, 4}, Kind::kLength},
      {"ArrayFeatureExtractor", "ai.onnx.ml", {}, {table, Ints({2}, 0)}, {{3, 2}}, {0, 3}, {4}, Kind::kOther},
  };
}

ErrorCode EndOf(const Case& c, int64_t value) {
  std::vector<Tensor> inputs = c.inputs;
  inputs[LookedAt(c)] = Ints(inputs[LookedAt(c)].shape(), value);
  try {
    RunReference(CallOf(c), inputs);
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kCheckFailed;  // nothing was thrown
}

TEST(DataChecks, MatchTheKernels) {
  const std::vector<Case> cases = Cases();
  for (const Case& c : cases) {
    SCOPED_TRACE(c.op);
    ASSERT_TRUE(MayRefuseData(c.domain, c.op));
    const std::vector<DataCheck> checks = DataChecksOf(CallOf(c));
    ASSERT_EQ(checks.size(), 1u);
    EXPECT_EQ(checks[0].input, LookedAt(c));
    EXPECT_EQ(checks[0].kind, c.kind);
    for (int64_t value : c.taken) EXPECT_EQ(EndOf(c, value), ErrorCode::kCheckFailed) << value;
    for (int64_t value : c.refused) EXPECT_EQ(EndOf(c, value), ErrorCode::kData) << value;
    for (const Case& other : cases) {
      const bool implied = checks[0].ImpliedBy(DataChecksOf(CallOf(other))[0]);
      if (c.forward == other.op) {
        EXPECT_TRUE(implied) << other.op;
      }
      // The forward operator rejects everything that the gradient would reject.
      for (int64_t value : c.refused) {
        if (!implied) continue;
        EXPECT_EQ(EndOf(other, value), ErrorCode::kData) << other.op << " takes " << value;
      }
    }
  }
}

TEST(DataChecks, DependOnOperandTypes) {
  const auto checks = [](const std::string& op, DType dtype) {
    return DataChecksOf(
               {.op = op, .domain = "", .attributes = {}, .inputs = {{dtype, {2}, {}}, {dtype, {2}, {}}}, .outputs = {{dtype, {2}, {}}}})
        .size();
  };
  EXPECT_EQ(checks("Div", DType::kFloat32), 0u);
  EXPECT_EQ(checks("Div", DType::kInt64), 1u);
  EXPECT_EQ(checks("Add", DType::kInt64), 0u);
  // Operands that fit no operator, as in a plan from an untrusted source.
  for (const char* op : {"Gather", "GatherND", "LSTM", "RoiAlign", "ReverseSequence", "TensorScatter", "SoftmaxCrossEntropyLoss", "Div"})
    DataChecksOf({.op = op, .domain = "", .attributes = {}, .inputs = {}, .outputs = {}});
}

// Indices that an operator computes lie within the range that it searched.
TEST(DataChecks, KnowTheRangeOfComputedIndices) {
  KernelCall call{
      .op = "TopK", .domain = "", .attributes = {{"axis", int64_t{1}}}, .inputs = {{DType::kFloat32, {2, 7}, {}}}, .outputs = {}};
  EXPECT_EQ(IndicesBelow(call, 1), 7);
  EXPECT_EQ(IndicesBelow(call, 0), -1);
  const DataCheck wide{1, Kind::kIndex, {7}}, narrow{1, Kind::kIndex, {6}}, labels{1, Kind::kLabel, {7, -100}};
  EXPECT_TRUE(wide.AcceptsIndicesBelow(7));
  EXPECT_FALSE(narrow.AcceptsIndicesBelow(7));
  EXPECT_FALSE(labels.AcceptsIndicesBelow(7));
  EXPECT_FALSE(wide.AcceptsIndicesBelow(-1));
}

}  // namespace
}  // namespace gradloom
