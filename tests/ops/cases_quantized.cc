#include "tests/ops/case_list.h"

namespace gradloom {
namespace {

OpOperand Whole(DType dtype, Shape shape, int64_t low, int64_t past) {
  OpOperand operand = In(std::move(shape), static_cast<double>(low), static_cast<double>(past));
  operand.dtype = dtype;
  return operand;
}

OpOperand Narrow(DType dtype, std::vector<double> values, Shape shape) {
  return Fed(Converted(Tensor::From(values, std::move(shape)).view(), dtype));
}

}  // namespace

// The scales of quantized tensors have gradients, the integers have none.
std::vector<OpCase> QuantizedCases() {
  const OpOperand bytes = Whole(DType::kUint8, {2, 3, 4}, 0, 256);
  std::vector<OpCase> cases = {
      {.op = "DequantizeLinear", .operands = {bytes, In({}, 0.1, 2), Whole(DType::kUint8, {}, 0, 20)}},
      {.op = "DequantizeLinear", .operands = {bytes, In({1}, 0.1, 2)}},
      {.op = "DequantizeLinear", .operands = {bytes, In({3}, 0.1, 2), Whole(DType::kUint8, {3}, 0, 20)}},
      {.op = "DequantizeLinear", .operands = {bytes, In({4}, 0.1, 2)}, .attributes = {{"axis", int64_t{-1}}}},
      {.op = "DequantizeLinear",
       .operands = {bytes, In({2, 2, 4}, 0.1, 2), Whole(DType::kUint8, {2, 2, 4}, 0, 20)},
       .attributes = {{"axis", int64_t{1}}, {"block_size", int64_t{2}}}},
      {.op = "DequantizeLinear",
       .operands = {bytes, In({2, 3, 2}, 0.1, 2)},
       .attributes = {{"axis", int64_t{2}}, {"block_size", int64_t{2}}}},
      {.op = "DequantizeLinear", .operands = {Whole(DType::kInt32, {5}, -9, 9), In({5}, 0.1, 2)}, .attributes = {{"axis", int64_t{0}}}},
      {.op = "DequantizeLinear", .operands = {Narrow(DType::kInt4, {-8, -1, 0, 7}, {2, 2}), In({2}, 0.1, 2)}},
      {.op = "DequantizeLinear", .operands = {Narrow(DType::kFloat8E4M3Fn, {-8, -0.5, 0, 448}, {2, 2}), In({}, 0.1, 2)}},
      {.op = "QuantizeLinear",
       .operands = {In({2, 3, 4}), In({3}, 0.1, 2), Whole(DType::kInt8, {3}, -5, 5)},
       .gradient = false,
       .half = false},
      {.op = "QLinearMatMul",
       .operands = {Whole(DType::kUint8, {3, 4}, 0, 256), Fed({0.02}, {}), Whole(DType::kUint8, {}, 0, 20),
                    Whole(DType::kInt8, {4, 2}, -128, 128), Fed({0.1}, {}), Whole(DType::kInt8, {}, -5, 5), Fed({0.3}, {}),
                    Whole(DType::kUint8, {}, 0, 20)},
       .gradient = false,
       .half = false},
  };
  for (OpCase& op_case : cases) op_case.float64 = false;
  return cases;
}

}  // namespace gradloom
