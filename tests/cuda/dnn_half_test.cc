// Convolutions and attention in 16 bits, which reference kernels do not support: every row is compared with the float32 reference on the
// same numbers, in plain layouts and in the layouts that the row prefers. Linked with the emulated runtime this tests how cuDNN is called;
// linked with CUDA's own runtime it tests the GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/catalog/attention.h"
#include "kernels/catalog/kernel.h"
#include "kernels/catalog/physical.h"
#include "kernels/cuda/rows/convolution.h"
#include "kernels/reference/reference.h"
#include "runtime/base/half.h"
#include "tests/cuda/run_kernel.h"

namespace gradloom {
namespace {

struct AttentionCase {
  std::string note;
  Shape q, k, v, y;
  Attributes attributes;
  std::optional<Shape> mask = {};  // added to the scores
  bool truths = false;             // the mask is boolean: it says which keys are visible
};

std::vector<AttentionCase> AttentionCases() {
  const int64_t one = 1;
  return {
      {"as many heads of each", {2, 3, 9, 16}, {2, 3, 9, 16}, {2, 3, 9, 16}, {2, 3, 9, 16}, {}},
      {"shared keys, another size of values", {2, 4, 5, 8}, {2, 2, 11, 8}, {2, 2, 11, 24}, {2, 4, 5, 24}, {{"scale", 0.7}}},
      {"causal", {1, 2, 7, 64}, {1, 1, 7, 64}, {1, 1, 7, 64}, {1, 2, 7, 64}, {{"is_causal", one}}},
      {"causal with more keys", {1, 1, 3, 8}, {1, 1, 6, 8}, {1, 1, 6, 8}, {1, 1, 3, 8}, {{"is_causal", one}}},
      {"heads side by side", {2, 6, 32}, {2, 8, 16}, {2, 8, 48}, {2, 6, 96}, {{"q_num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}}},
      {"a mask of keys",
       {2, 6, 32},
       {2, 6, 32},
       {2, 6, 32},
       {2, 6, 32},
       {{"q_num_heads", int64_t{4}}, {"kv_num_heads", int64_t{4}}},
       Shape{2, 1, 1, 6}},
      {"a mask for each sample", {3, 2, 5, 8}, {3, 2, 7, 8}, {3, 2, 7, 8}, {3, 2, 5, 8}, {}, Shape{3, 1, 5, 7}},
      {"a mask for each head, and shared keys",
       {2, 4, 5, 8},
       {2, 2, 7, 8},
       {2, 2, 7, 8},
       {2, 4, 5, 8},
       {{"is_causal", one}},
       Shape{4, 1, 7}},
      {"one mask", {2, 2, 5, 8}, {2, 2, 7, 8}, {2, 2, 7, 8}, {2, 2, 5, 8}, {}, Shape{5, 7}},
      {"keys that are seen", {2, 2, 5, 8}, {2, 2, 7, 8}, {2, 2, 7, 8}, {2, 2, 5, 8}, {}, Shape{2, 1, 1, 7}, true},
      {"keys that queries see", {2, 4, 5, 8}, {2, 2, 7, 8}, {2, 2, 7, 8}, {2, 4, 5, 8}, {}, Shape{4, 5, 7}, true},
  };
}

// Random numbers that both 16-bit types represent exactly.
Tensor Random(const Shape& shape, std::mt19937_64& random) {
  std::uniform_int_distribution<int> eighths(-8, 8);
  Tensor tensor(DType::kFloat32, shape);
  for (float& value : tensor.as<float>()) value = static_cast<float>(eighths(random)) / 8;
  return tensor;
}

// A boolean mask has at least one true element per row.
Tensor RandomMask(const AttentionCase& c, std::mt19937_64& random) {
  if (!c.truths) return Random(*c.mask, random);
  Tensor mask(DType::kBool, *c.mask);
  const size_t keys = static_cast<size_t>((*c.mask)[c.mask->rank() - 1]);
  for (size_t i = 0; i < mask.as<bool>().size(); ++i) mask.as<bool>()[i] = i % keys == 2 || random() % 2 == 0;
  return mask;
}

OperandType MaskType(const AttentionCase& c) { return {c.truths ? DType::kBool : DType::kFloat32, *c.mask, {}}; }

Tensor Rounded(const Tensor& tensor, DType dtype) {
  if (!tensor.defined() || tensor.dtype() != DType::kFloat32) return tensor;
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
      if (operand.dtype == DType::kFloat32) operand.dtype = dtype;
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

// The call in plain layouts, and in the layouts that cuDNN's row prefers.
std::vector<KernelCall> InLayouts(const KernelCall& call) {
  std::vector<KernelCall> calls{call};
  const KernelRow& row = *ChooseKernel(DeviceKind::kCuda, call);
  if (row.prefers == nullptr) return calls;
  EXPECT_TRUE(row.prefers(calls.emplace_back(call)));
  return calls;
}

// Compares all rows of the operator, those of cuDNN and our own.
void Compare(const KernelCall& call, const std::vector<Tensor>& inputs, bool plain_kernels = true) {
  const std::vector<Tensor> wanted = RunReference(call, inputs);
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    const KernelCall rounded = InType(call, dtype);
    std::vector<Tensor> operands;
    for (const Tensor& input : inputs) operands.push_back(Rounded(input, dtype));
    int rows = 0;
    for (const KernelCall& each : InLayouts(rounded)) {
      for (const KernelRow* row : KernelRows(DeviceKind::kCuda)) {
        // attention_products_test covers the rows that use products, weight_gradient_test one for float32.
        if (row->op != call.op || row->domain != call.domain) continue;
        if (row->name.starts_with("cublas.") || row->name.starts_with("cuda.small.")) continue;
        if (!plain_kernels && !row->name.starts_with("cudnn.")) continue;
        ASSERT_EQ(Rejection(*row, each), "") << row->name;
        ++rows;
        const std::vector<Tensor> got = RunKernel(*row, each, operands);
        for (size_t k = 0; k < wanted.size(); ++k)
          ExpectNear(got[k], wanted[k], dtype, std::string(row->name) + " output " + std::to_string(k));
      }
    }
    EXPECT_EQ(rows, call.op.starts_with("Conv") ? 4 : plain_kernels ? 2 : 1);
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

// Convolutions of few channels with x and w padded to whole words, as the plan has them where this is worth it. RunKernel checks that the
// padding of gradients is zero.
TEST(DnnConvolution, PaddedChannelsAgreeWithTheReference) {
  using Ints = std::vector<int64_t>;
  std::mt19937_64 random(5);
  for (int64_t channels = 1; channels <= 11; channels += 2) {
    for (const int rank : {3, 4, 5}) {
      Shape x{2, channels, 7}, w{4, channels, 3}, y{2, 4, 4};
      for (int dim = 3; dim < rank; ++dim) x.push_back(6), w.push_back(2), y.push_back(3);
      const Attributes attributes{{"strides", Ints(static_cast<size_t>(rank) - 2, 2)}, {"pads", [&] {
                                                                                          Ints pads(2 * static_cast<size_t>(rank) - 4, 0);
                                                                                          pads[0] = pads[static_cast<size_t>(rank) - 2] = 1;
                                                                                          return pads;
                                                                                        }()}};
      const Tensor values[] = {Random(x, random), Random(w, random), Random(y, random), Random({4}, random)};
      const auto compare = [&](const std::string& op, std::vector<size_t> inputs, size_t output) {
        KernelCall call{.op = op, .domain = op == "Conv" ? "" : "gradloom", .attributes = attributes, .inputs = {}, .outputs = {}};
        call.attributes.set("shape", values[output].shape().dims());
        std::vector<Tensor> operands;
        for (size_t i : inputs) call.inputs.push_back(Float(values[i].shape())), operands.push_back(values[i]);
        call.outputs.push_back(Float(values[output].shape()));
        const std::vector<Tensor> wanted = RunReference(call, operands);
        for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
          KernelCall padded = InType(call, dtype);
          inputs.push_back(output);
          for (size_t i = 0; i < inputs.size(); ++i) {
            OperandType& operand = i + 1 == inputs.size() ? padded.outputs[0] : padded.inputs[i];
            if (inputs[i] < 2) operand.layout = PaddedChannels(dtype, rank);
            if (inputs[i] == 2) operand.layout = ChannelsLast(rank);
          }
          inputs.pop_back();
          std::vector<Tensor> rounded;
          for (const Tensor& operand : operands) rounded.push_back(Rounded(operand, dtype));
          for (const std::string library : {"cudnn.", "cuda."}) {
            const KernelRow* const row = FindKernel(library + (op == "Conv" ? "" : "gradloom.") + op);
            ASSERT_EQ(Rejection(*row, padded), "") << row->name << " of " << x.ToString();
            ExpectNear(RunKernel(*row, padded, rounded)[0], wanted[0], dtype, std::string(row->name) + " of " + x.ToString());
          }
        }
      };
      compare("Conv", {0, 1}, 2);
      compare("Conv", {0, 1, 3}, 2);
      compare("ConvGradInput", {2, 1}, 0);
      compare("ConvGradWeight", {0, 2}, 1);
    }
  }
}

// Statistics and per-channel coefficients of 16-bit elements are float32, like the parameters.
TEST(BatchNormLine, SixteenBitsAgreeWithTheReference) {
  std::mt19937_64 random(4);
  for (const Shape& shape : {Shape{4, 3, 5, 2}, Shape{64, 8, 12, 11}, Shape{5, 70}, Shape{2, 3, 300}}) {
    const OperandType c = Float({shape[1]});
    Shape beside{shape[1]};
    for (int axis = 2; axis < shape.rank(); ++axis) beside.push_back(1);
    KernelCall call{
        .op = "BatchNormLine", .domain = "gradloom", .attributes = {{"epsilon", 1e-5}}, .inputs = {Float(shape), c, c}, .outputs = {}};
    call.outputs = {c, c, c, Float(beside), Float(beside), Float(beside)};
    const std::vector<Tensor> inputs{Random(shape, random), Random(c.shape, random), Random(c.shape, random)};
    const std::vector<Tensor> wanted = RunReference(call, inputs);
    for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
      for (const Layout& layout : {Layout{}, ChannelsLast(shape.rank())}) {
        call.inputs[0] = {dtype, shape, layout};
        const auto got = RunKernel(*ChooseKernel(DeviceKind::kCuda, call), call, {Rounded(inputs[0], dtype), inputs[1], inputs[2]});
        for (size_t k = 0; k < wanted.size(); ++k) {
          for (int64_t i = 0; i < wanted[k].elements(); ++i) {
            const double w = ElementAsDouble(wanted[k].view(), i);
            ASSERT_NEAR(ElementAsDouble(got[k].view(), i), w, 1e-5 * std::max(1.0, std::fabs(w))) << shape.ToString() << " output " << k;
          }
        }
      }
    }
  }
}

TEST(DnnAttention, ForwardAgreesWithTheReference) {
  std::mt19937_64 random(1);
  for (const AttentionCase& c : AttentionCases()) {
    SCOPED_TRACE(c.note);
    KernelCall call{.op = "Attention",
                    .domain = "",
                    .attributes = c.attributes,
                    .inputs = {Float(c.q), Float(c.k), Float(c.v)},
                    .outputs = {Float(c.y)}};
    std::vector<Tensor> inputs{Random(c.q, random), Random(c.k, random), Random(c.v, random)};
    if (c.mask) {
      call.inputs.push_back(MaskType(c));
      inputs.push_back(RandomMask(c, random));
    }
    Compare(call, inputs);
  }
}

// cuDNN returns some average of the values in this case, which is finite. A NaN would spread.
TEST(DnnAttention, QueryWithoutVisibleKeysIsFinite) {
  std::mt19937_64 random(6);
  const Shape shape{1, 1, 2, 8}, keys{1, 1, 3, 8};
  Tensor mask(DType::kFloat32, Shape{2, 3});
  for (size_t i = 0; i < 6; ++i) mask.as<float>()[i] = i < 3 ? -INFINITY : 0;
  const Tensor q = Random(shape, random), k = Random(keys, random), v = Random(keys, random);
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    const KernelCall call = InType({.op = "Attention",
                                    .domain = "",
                                    .attributes = {},
                                    .inputs = {Float(shape), Float(keys), Float(keys), Float({2, 3})},
                                    .outputs = {Float(shape)}},
                                   dtype);
    const KernelRow& row = *ChooseKernel(DeviceKind::kCuda, call);
    EXPECT_EQ(row.name, "cudnn.Attention");
    const Tensor y = RunKernel(row, call, {Rounded(q, dtype), Rounded(k, dtype), Rounded(v, dtype), Rounded(mask, dtype)})[0];
    for (int64_t e = 0; e < 8; ++e) {
      double least = 1, most = -1;
      for (int64_t j = 0; j < 3; ++j) {
        least = std::min(least, ElementAsDouble(v.view(), j * 8 + e));
        most = std::max(most, ElementAsDouble(v.view(), j * 8 + e));
      }
      EXPECT_GE(ElementAsDouble(y.view(), e), least - 0.01);
      EXPECT_LE(ElementAsDouble(y.view(), e), most + 0.01);
    }
  }
}

// The same for a gradient that is given Y and the log-sum-exps, which the forward pass of the same kernels returned.
void CompareKept(const KernelCall& gradient, const std::vector<Tensor>& inputs, bool plain_kernels) {
  constexpr size_t kOperands = 7;
  const std::vector<Tensor> wanted = RunReference(gradient, inputs);
  const AttentionForm form = AttentionFormOf(gradient);
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    KernelCall call = InType(gradient, dtype);
    KernelCall training{.op = "AttentionTraining",
                        .domain = "gradloom",
                        .attributes = gradient.attributes,
                        .inputs = {call.inputs.begin(), call.inputs.begin() + kOperands},
                        .outputs = {call.inputs[kOperands], {}, {}, {}, Float({form.batch, form.q.heads, form.q.length})}};
    call.inputs.insert(call.inputs.end(), {training.outputs[0], training.outputs[attention::kLogSums]});
    std::vector<Tensor> operands;
    for (const Tensor& input : inputs) operands.push_back(Rounded(input, dtype));
    for (const std::string family : {"cudnn.gradloom.", "cuda.gradloom."}) {
      if (!plain_kernels && family != "cudnn.gradloom.") continue;
      const KernelRow &forward = *FindKernel(family + training.op), &row = *FindKernel(family + call.op);
      ASSERT_EQ(Rejection(forward, training), "") << forward.name;
      ASSERT_EQ(Rejection(row, call), "") << row.name;
      const std::vector<Tensor> kept = RunKernel(forward, training, {operands.begin(), operands.begin() + kOperands});
      std::vector<Tensor> given = operands;
      given.insert(given.end(), {kept[0], kept[attention::kLogSums]});
      const std::vector<Tensor> got = RunKernel(row, call, given);
      for (size_t k = 0; k < wanted.size(); ++k)
        ExpectNear(got[k], wanted[k], dtype, std::string(row.name) + " with kept values, output " + std::to_string(k));
    }
  }
}

void CompareGradient(const AttentionCase& c, const std::vector<int64_t>& wanted, std::mt19937_64& random, bool plain_kernels = true) {
  KernelCall call{.op = "AttentionGrad",
                  .domain = "gradloom",
                  .attributes = c.attributes,
                  .inputs = {Float(c.q), Float(c.k), Float(c.v), {}, {}, {}, {}, Float(c.y), {}, {}},
                  .outputs = {}};
  call.attributes.set("wanted", wanted);
  for (int64_t i : wanted) call.outputs.push_back(call.inputs[static_cast<size_t>(i)]);
  std::vector<Tensor> inputs{Random(c.q, random), Random(c.k, random), Random(c.v, random), {}, {}, {}, {}, Random(c.y, random), {}, {}};
  if (c.mask) {
    call.inputs[3] = MaskType(c);
    inputs[3] = RandomMask(c, random);
  }
  Compare(call, inputs, plain_kernels);
  CompareKept(call, inputs, plain_kernels);
}

TEST(DnnAttention, GradientsAgreeWithTheReference) {
  std::mt19937_64 random(2);
  for (const AttentionCase& c : AttentionCases()) {
    for (const std::vector<int64_t>& wanted : {std::vector<int64_t>{0, 1, 2}, {1}, {0, 2}}) {
      SCOPED_TRACE(c.note + ", " + std::to_string(wanted.size()) + " gradients");
      CompareGradient(c, wanted, random);
    }
  }
}

// The scores of one head take 16 KiB here, those of all heads 320 MiB. The plain kernels do not split the work and would take minutes.
TEST(DnnAttention, GradientsSplitIntoPartsWhoseScoresFit) {
  const AttentionCase samples{"samples", {128, 160, 2, 8}, {128, 160, 3, 8}, {128, 160, 3, 16}, {128, 160, 2, 16}, {}, Shape{128, 1, 1, 3}};
  const AttentionCase heads{"heads of a sample", {1, 2, 20480 * 8}, {1, 3, 10240 * 8},
                            {1, 3, 10240 * 8},   {1, 2, 20480 * 8}, {{"q_num_heads", int64_t{20480}}, {"kv_num_heads", int64_t{10240}}},
                            Shape{20480, 1, 3}};
  std::mt19937_64 random(12);
  for (const AttentionCase& c : {samples, heads}) {
    SCOPED_TRACE(c.note);
    CompareGradient(c, {0, 1, 2}, random, false);
  }
  // The scores of a single head do not fit.
  const Shape long_one{1, 1, 16384, 8};
  KernelCall call{.op = "AttentionGrad",
                  .domain = "gradloom",
                  .attributes = {{"wanted", std::vector<int64_t>{0}}},
                  .inputs = std::vector<OperandType>(10),
                  .outputs = {{DType::kBfloat16, long_one, {}}}};
  for (size_t i : {0, 1, 2, 7}) call.inputs[i] = call.outputs[0];
  EXPECT_EQ(ChooseKernel(DeviceKind::kCuda, call)->name, "cublas.gradloom.AttentionGrad");
}

}  // namespace
}  // namespace gradloom
