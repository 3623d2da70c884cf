// Calls of attention that are computed as cuBLASLt products, and the float32 reference for comparison.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/cuda/rows/attention_products.h"
#include "kernels/reference/reference.h"
#include "runtime/base/half.h"
#include "tests/cuda/run_kernel.h"

namespace gradloom::attention_calls {

struct Case {
  std::string note;
  int64_t batch, q_heads, kv_heads, q_length, kv_length, size, v_size;
  bool flat = false;
  Attributes attributes = {};
  Shape mask = {};  // rank 0 means no mask
  bool truths = false;
  bool drops = false;
  // Expected properties.
  bool packed = false;
  size_t blocks = 1;
};

inline constexpr int64_t kOne = 1;

inline std::vector<Case> Cases() {
  return {
      {"heads in a row", 2, 3, 3, 9, 13, 16, 24},
      {"a single query", 1, 1, 1, 1, 1, 1, 1},
      {"a mask for each head", 2, 3, 3, 5, 7, 8, 8, false, {{"scale", 0.7}}, {3, 5, 7}},
      {"truths, some queries see nothing", 3, 2, 2, 6, 9, 4, 4, false, {}, {3, 1, 6, 9}, true},
      {"a mask of fewer keys", 2, 2, 2, 6, 9, 4, 4, false, {}, {2, 2, 6, 5}},
      {"a soft cap", 2, 2, 2, 6, 9, 4, 4, false, {{"softcap", 1.5}}},
      {"dropped", 2, 2, 2, 6, 9, 4, 4, false, {}, {}, false, true},
      {"causal blocks", 1, 2, 2, 530, 530, 8, 8, false, {{"is_causal", kOne}}, {}, false, true, false, 3},
      {"more queries than keys", 1, 1, 1, 300, 40, 8, 8, false, {{"is_causal", kOne}}, {}, false, false, false, 2},
      {"a window",
       1,
       1,
       1,
       600,
       640,
       8,
       4,
       false,
       {{"left_window_size", int64_t{30}}, {"right_window_size", int64_t{7}}},
       {},
       false,
       false,
       false,
       3},
      {"heads side by side, many samples", 5, 3, 3, 17, 20, 4, 2, true, {}, {5, 1, 1, 20}, true, true, true},
      {"heads side by side, many heads", 2, 5, 5, 24, 19, 8, 4, true, {}, {}, false, false, true},
      {"heads side by side, few scores", 3, 2, 2, 5, 6, 3, 5, true, {}, {}, false, false, true},
      {"heads side by side, one sample", 1, 5, 5, 20, 11, 8, 4, true},
      {"shared keys", 4, 4, 2, 26, 21, 4, 3, false, {}, {}, false, true, true},
      {"shared keys side by side, causal", 4, 4, 2, 300, 300, 2, 4, true, {{"is_causal", kOne}}, {}, false, false, true, 2},
  };
}

inline OperandType Float(const Shape& shape) { return {DType::kFloat32, shape, {}}; }

// The forward call, or the call for the gradients of the `wanted` inputs.
inline KernelCall CallOf(const Case& c, const std::vector<int64_t>& wanted = {}) {
  const auto shape = [&](int64_t heads, int64_t length, int64_t size) {
    return c.flat ? Shape{c.batch, length, heads * size} : Shape{c.batch, heads, length, size};
  };
  KernelCall call{.op = "Attention",
                  .domain = "",
                  .attributes = c.attributes,
                  .inputs = {Float(shape(c.q_heads, c.q_length, c.size)),
                             Float(shape(c.kv_heads, c.kv_length, c.size)),
                             Float(shape(c.kv_heads, c.kv_length, c.v_size)),
                             {},
                             {},
                             {},
                             {}},
                  .outputs = {}};
  if (c.mask.rank() > 0) call.inputs[3] = {c.truths ? DType::kBool : DType::kFloat32, c.mask, {}};
  if (c.flat) {
    call.attributes.set("q_num_heads", c.q_heads);
    call.attributes.set("kv_num_heads", c.kv_heads);
  }
  const OperandType y = Float(shape(c.q_heads, c.q_length, c.v_size));
  if (wanted.empty()) {
    call.outputs = {y};
  } else {
    call.op += "Grad";
    call.domain = "gradloom";
    call.attributes.set("wanted", wanted);
    for (int64_t i : wanted) call.outputs.push_back(call.inputs[static_cast<size_t>(i)]);
    call.inputs.insert(call.inputs.end(), {y, {}, {}});
  }
  if (!c.drops) return call;
  call.op.insert(call.op.find("ion") + 3, "Dropout");
  call.domain = "gradloom";
  for (int i = 0; i < 3; ++i) call.inputs.push_back({DType::kInt64, {}, {}});
  call.attributes.set("ratio", 0.3);
  call.attributes.set("origin", int64_t{77});
  call.attributes.set("samples", std::vector<int64_t>{c.batch + 7, c.batch, c.q_heads * c.q_length * c.kv_length});
  return call;
}

// Random values that 16-bit types represent exactly, with seeds, a batch number and a first sample. About half of the elements of a boolean
// mask are true, and none in the first row.
inline std::vector<Tensor> RandomInputs(const KernelCall& call, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Tensor> inputs;
  for (const OperandType& type : call.inputs) {
    inputs.emplace_back();
    if (!type.present()) continue;
    Tensor& tensor = inputs.back() = Tensor(type.dtype, type.shape);
    if (type.dtype == DType::kInt64) tensor.as<int64_t>()[0] = 2;
    if (type.dtype == DType::kFloat32) {
      for (float& value : tensor.as<float>()) value = static_cast<float>(static_cast<int>(random() % 17) - 8) / 8;
    }
    if (type.dtype == DType::kBool) {
      const size_t keys = static_cast<size_t>(type.shape[type.shape.rank() - 1]);
      for (size_t i = 0; i < tensor.as<bool>().size(); ++i) tensor.as<bool>()[i] = i >= keys && random() % 2 == 0;
    }
  }
  return inputs;
}

inline Tensor Rounded(const Tensor& tensor, DType dtype) {
  if (!tensor.defined() || tensor.dtype() != DType::kFloat32 || dtype == DType::kFloat32) return tensor;
  Tensor rounded(dtype, tensor.shape());
  for (size_t i = 0; i < tensor.as<float>().size(); ++i) {
    const float value = tensor.as<float>()[i];
    if (dtype == DType::kFloat16) static_cast<Half*>(rounded.data())[i] = value;
    if (dtype == DType::kBfloat16) static_cast<Bfloat16*>(rounded.data())[i] = value;
  }
  return rounded;
}

inline KernelCall InType(KernelCall call, DType dtype) {
  for (auto* operands : {&call.inputs, &call.outputs}) {
    for (OperandType& operand : *operands) {
      if (operand.dtype == DType::kFloat32) operand.dtype = dtype;
    }
  }
  return call;
}

inline std::string RowOf(const KernelCall& call) { return "cublas." + (call.domain.empty() ? "" : call.domain + ".") + call.op; }

// Compares in three types. The 16-bit ones round weights and the gradients of scores once.
inline void Compare(const KernelCall& call, uint64_t seed) {
  const std::vector<Tensor> inputs = RandomInputs(call, seed), wanted = RunReference(call, inputs);
  double largest = 1;
  for (const Tensor& each : wanted) {
    for (int64_t i = 0; i < each.elements(); ++i) largest = std::max(largest, std::fabs(ElementAsDouble(each.view(), i)));
  }
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
    const KernelCall typed = InType(call, dtype);
    const KernelRow& row = *FindKernel(RowOf(call));
    ASSERT_EQ(Rejection(row, typed), "");
    std::vector<Tensor> operands;
    for (const Tensor& input : inputs) operands.push_back(Rounded(input, dtype));
    const std::vector<Tensor> got = RunKernel(row, typed, operands);
    const double allowed = dtype == DType::kFloat32 ? 3e-6 : dtype == DType::kFloat16 ? 1e-3 : 8e-3;
    for (size_t k = 0; k < wanted.size(); ++k) {
      for (int64_t i = 0; i < wanted[k].elements(); ++i) {
        ASSERT_NEAR(ElementAsDouble(got[k].view(), i), ElementAsDouble(wanted[k].view(), i), allowed * largest)
            << DTypeName(dtype) << " output " << k << " element " << i;
      }
    }
  }
}

}  // namespace gradloom::attention_calls
