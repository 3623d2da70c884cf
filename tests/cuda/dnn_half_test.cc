// Convolutions and attention in 16 bits, which reference kernels do not have: every row against the reference in float32 over the same
// numbers, in plain layouts and in those that it wishes. Linked with the emulated runtime it tests how cuDNN is asked; with CUDA's own, the
// GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/reference/reference.h"
#include "runtime/base/half.h"
#include "tests/cuda/run_kernel.h"

namespace gradloom {
namespace {

struct AttentionCase {
  std::string note;
  Shape q, k, v, y;
  Attributes attributes;
};

std::vector<AttentionCase> AttentionCases() {
  const int64_t one = 1;
  return {
      {"as many heads of each", {2, 3, 9, 16}, {2, 3, 9, 16}, {2, 3, 9, 16}, {2, 3, 9, 16}, {}},
      {"shared keys, another size of values", {2, 4, 5, 8}, {2, 2, 11, 8}, {2, 2, 11, 24}, {2, 4, 5, 24}, {{"scale", 0.7}}},
      {"causal", {1, 2, 7, 64}, {1, 1, 7, 64}, {1, 1, 7, 64}, {1, 2, 7, 64}, {{"is_causal", one}}},
      {"causal with more keys", {1, 1, 3, 8}, {1, 1, 6, 8}, {1, 1, 6, 8}, {1, 1, 3, 8}, {{"is_causal", one}}},
      {"heads side by side", {2, 6, 32}, {2, 8, 16}, {2, 8, 48}, {2, 6, 96}, {{"q_num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}}},
  };
}

// Numbers that both types hold.
Tensor Random(const Shape& shape, std::mt19937_64& random) {
  std::uniform_int_distribution<int> eighths(-8, 8);
  Tensor tensor(DType::kFloat32, shape);
  for (float& value : tensor.as<float>()) value = static_cast<float>(eighths(random)) / 8;
  return tensor;
}

Tensor Rounded(const Tensor& tensor, DType dtype) {
  if (!tensor.defined()) return {};
  Tensor rounded(dtype, tensor.shape());
  for (size_t i = 0; i < tensor.as<float>().size(); ++i) {
    const float value = tensor.as<float>()[i];
    if (dtype == DType::kFloat16) static_cast<Half*>(rounded.data())[i] = value;
    if (dtype == DType::kBfloat16) static_cast<Bfloat16*>(rounded.data())[i] = value;
  }
  return rounded;
}

KernelCall InType(KernelCall call, DType dtype) {
  for (auto* operands : {&call.inputs, &call.outputs}) {
    for (OperandType& operand : *operands) {
      if (operand.present()) operand.dtype = dtype;
    }
  }
  return call;
}

// Results are rounded once or twice, and the gradient of a score is a difference of rounded numbers.
void ExpectNear(const Tensor& got, const Tensor& wanted, DType dtype, const std::string& what) {
  const double allowed = dtype == DType::kFloat16 ? 0.01 : 0.06;
  for (int64_t i = 0; i < wanted.elements(); ++i) {
    const double w = ElementAsDouble(wanted.view(), i), g = ElementAsDouble(got.view(), i);
    ASSERT_NEAR(g, w, allowed * std::max(1.0, std::fabs(w))) << what << " element " << i;
  }
}

// The call, and as cuDNN's row wishes its operands to lie.
std::vector<KernelCall> InLayouts(const KernelCall& call) {
  std::vector<KernelCall> calls{call};
  const KernelRow& row = *ChooseKernel(DeviceKind::kCuda, call);
  if (row.prefers == nullptr) return calls;
  EXPECT_TRUE(row.prefers(calls.emplace_back(call)));
  return calls;
}

// By all rows of the operator, cuDNN's and ours.
void Compare(const KernelCall& call, const std::vector<Tensor>& inputs) {
  const std::vector<Tensor> wanted = RunReference(call, inputs);
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    const KernelCall rounded = InType(call, dtype);
    std::vector<Tensor> operands;
    for (const Tensor& input : inputs) operands.push_back(Rounded(input, dtype));
    int rows = 0;
    for (const KernelCall& each : InLayouts(rounded)) {
      for (const KernelRow* row : KernelRows(DeviceKind::kCuda)) {
        if (row->op != call.op || row->domain != call.domain) continue;
        ASSERT_EQ(Rejection(*row, each), "") << row->name;
        ++rows;
        const std::vector<Tensor> got = RunKernel(*row, each, operands);
        for (size_t k = 0; k < wanted.size(); ++k)
          ExpectNear(got[k], wanted[k], dtype, std::string(row->name) + " output " + std::to_string(k));
      }
    }
    EXPECT_EQ(rows, call.op.starts_with("Conv") ? 4 : 2);
  }
}

OperandType Float(const Shape& shape) { return {DType::kFloat32, shape, {}}; }

TEST(DnnConvolution, AgreesWithTheReference) {
  using Ints = std::vector<int64_t>;
  struct Case {
    Shape x, w, y;
    Attributes attributes;
  };
  const Case cases[] = {
      {{2, 8, 7, 6}, {16, 8, 3, 3}, {2, 16, 7, 6}, {{"pads", Ints{1, 1, 1, 1}}}},
      {{2, 6, 9, 8}, {4, 3, 3, 2}, {2, 4, 4, 4}, {{"strides", Ints{2, 2}}, {"group", int64_t{2}}}},
      {{1, 8, 9, 9}, {8, 1, 3, 3}, {1, 8, 9, 9}, {{"pads", Ints{2, 2, 2, 2}}, {"dilations", Ints{2, 2}}, {"group", int64_t{8}}}},
      {{2, 8, 20}, {16, 8, 3}, {2, 16, 10}, {{"pads", Ints{1, 1}}, {"strides", Ints{2}}}},
      {{1, 3, 5, 6, 4}, {4, 3, 2, 3, 1}, {1, 4, 4, 4, 4}, {}},
  };
  std::mt19937_64 random(3);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.x.ToString() + " * " + c.w.ToString());
    const Tensor x = Random(c.x, random), w = Random(c.w, random), y = Random(c.y, random);
    const Tensor y_bias = Random({c.y[1]}, random), x_bias = Random({c.x[1]}, random);
    const auto call = [&](const std::string& op, const std::string& domain, std::vector<Shape> inputs, const Shape& output) {
      KernelCall made{.op = op, .domain = domain, .attributes = c.attributes, .inputs = {}, .outputs = {Float(output)}};
      for (const Shape& input : inputs) made.inputs.push_back(Float(input));
      if (op != "ConvTranspose") made.attributes.set("shape", output.dims());
      return made;
    };
    Compare(call("Conv", "", {c.x, c.w}, c.y), {x, w});
    Compare(call("Conv", "", {c.x, c.w, {c.y[1]}}, c.y), {x, w, y_bias});
    Compare(call("ConvTranspose", "", {c.y, c.w, {c.x[1]}}, c.x), {y, w, x_bias});
    Compare(call("ConvGradInput", "gradloom", {c.y, c.w}, c.x), {y, w});
    Compare(call("ConvGradWeight", "gradloom", {c.x, c.y}, c.w), {x, y});
  }
}

TEST(DnnAttention, ForwardAgreesWithTheReference) {
  std::mt19937_64 random(1);
  for (const AttentionCase& c : AttentionCases()) {
    SCOPED_TRACE(c.note);
    const KernelCall call{.op = "Attention",
                          .domain = "",
                          .attributes = c.attributes,
                          .inputs = {Float(c.q), Float(c.k), Float(c.v)},
                          .outputs = {Float(c.y)}};
    Compare(call, {Random(c.q, random), Random(c.k, random), Random(c.v, random)});
  }
}

TEST(DnnAttention, GradientsAgreeWithTheReference) {
  std::mt19937_64 random(2);
  for (const AttentionCase& c : AttentionCases()) {
    for (const std::vector<int64_t>& wanted : {std::vector<int64_t>{0, 1, 2}, {1}, {0, 2}}) {
      SCOPED_TRACE(c.note + ", " + std::to_string(wanted.size()) + " gradients");
      KernelCall call{.op = "AttentionGrad",
                      .domain = "gradloom",
                      .attributes = c.attributes,
                      .inputs = {Float(c.q), Float(c.k), Float(c.v), {}, {}, {}, {}, Float(c.y), {}, {}},
                      .outputs = {}};
      call.attributes.set("wanted", wanted);
      for (int64_t i : wanted) call.outputs.push_back(call.inputs[static_cast<size_t>(i)]);
      Compare(call, {Random(c.q, random), Random(c.k, random), Random(c.v, random), {}, {}, {}, {}, Random(c.y, random), {}, {}});
    }
  }
}

}  // namespace
}  // namespace gradloom
