// Normalizations over long rows and their gradients, which the table of operators does not cover: of rows that are held in registers,
// computed by blocks over runs of rows, and of rows that are too long for that.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/cuda/rows/slices.h"
#include "kernels/reference/reference.h"
#include "runtime/base/half.h"
#include "tests/cuda/run_kernel.h"

namespace gradloom {
namespace {

using cuda::HeldRows;
using cuda::RowRuns;

// dy is rounded to `narrow` if that is a 16-bit type.
struct Types {
  DType wide, narrow;
};

Tensor Random(DType dtype, const Shape& shape, std::mt19937_64& random, double mean) {
  std::normal_distribution<double> normal(mean, 1);
  Tensor tensor(dtype, shape);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const double value = normal(random);
    if (dtype == DType::kFloat64) tensor.as<double>()[static_cast<size_t>(i)] = value;
    // Rounded so that 16-bit types represent it exactly and all types see the same values.
    if (dtype == DType::kFloat32) tensor.as<float>()[static_cast<size_t>(i)] = std::round(static_cast<float>(value) * 16) / 16;
  }
  return tensor;
}

Tensor Narrowed(const Tensor& tensor, DType dtype) {
  if (dtype == tensor.dtype()) return tensor;
  Tensor narrow(dtype, tensor.shape());
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const float value = static_cast<float>(ElementAsDouble(tensor.view(), i));
    if (dtype == DType::kFloat16) static_cast<Half*>(narrow.data())[i] = value;
    if (dtype == DType::kBfloat16) static_cast<Bfloat16*>(narrow.data())[i] = value;
  }
  return narrow;
}

void ExpectClose(const Tensor& got, const Tensor& wanted, double relative) {
  double largest = 0;
  for (int64_t i = 0; i < wanted.elements(); ++i) largest = std::max(largest, std::fabs(ElementAsDouble(wanted.view(), i)));
  for (int64_t i = 0; i < wanted.elements(); ++i)
    ASSERT_NEAR(ElementAsDouble(got.view(), i), ElementAsDouble(wanted.view(), i), largest * relative) << "element " << i;
}

void Compare(const std::string& op, int64_t rows, int64_t columns, const Types& types, std::vector<size_t> absent = {}) {
  SCOPED_TRACE(op + " of " + std::to_string(rows) + " x " + std::to_string(columns) + " " + std::string(DTypeName(types.narrow)));
  std::mt19937_64 random(static_cast<uint64_t>(rows * columns));
  const OperandType x{types.wide, {rows, columns}, {}}, scale{types.wide, {columns}, {}};
  KernelCall call{.op = op, .domain = "gradloom", .attributes = {{"epsilon", 1e-5}}, .inputs = {x, x, scale}, .outputs = {x, scale}};
  if (op == "LayerNormGrad") call.outputs.push_back(scale);
  std::vector<Tensor> inputs{Random(types.wide, x.shape, random, 0.5), Random(types.wide, x.shape, random, 3),
                             Random(types.wide, scale.shape, random, 1)};
  const std::vector<Tensor> wanted = RunReference(call, inputs);
  call.inputs[0].dtype = types.narrow;
  inputs[0] = Narrowed(inputs[0], types.narrow);
  for (size_t k : absent) call.outputs[k] = {};
  const std::vector<Tensor> got = RunKernel(*ChooseKernel(DeviceKind::kCuda, call), call, inputs);
  for (size_t k = 0; k < got.size(); ++k) {
    SCOPED_TRACE("output " + std::to_string(k));
    if (got[k].defined()) ExpectClose(got[k], wanted[k], types.wide == DType::kFloat64 ? 1e-13 : 5e-6);
  }
}

// A forward call in float32.
void CompareForward(const std::string& op, int64_t rows, int64_t columns, bool has_bias, DType narrow = DType::kUndefined) {
  SCOPED_TRACE(op + " of " + std::to_string(rows) + " x " + std::to_string(columns) + " " + std::string(DTypeName(narrow)));
  std::mt19937_64 random(static_cast<uint64_t>(rows * columns));
  const OperandType x{DType::kFloat32, {rows, columns}, {}}, row{DType::kFloat32, {columns}, {}};
  KernelCall call{.op = op,
                  .domain = op == "LayerNormCast" ? "gradloom" : "",
                  .attributes = {{"axis", int64_t{-1}}, {"epsilon", 1e-5}},
                  .inputs = {x, row},
                  .outputs = {x}};
  std::vector<Tensor> inputs{Random(DType::kFloat32, x.shape, random, 3), Random(DType::kFloat32, row.shape, random, 1)};
  if (has_bias) {
    call.inputs.push_back(row);
    inputs.push_back(Random(DType::kFloat32, row.shape, random, 0));
  }
  if (op == "LayerNormCast") {
    call.attributes.set("to", static_cast<int64_t>(narrow));
    call.outputs.push_back({narrow, x.shape, {}});
  } else if (op == "LayerNormalization") {
    for (int k = 0; k < 2; ++k) call.outputs.push_back({DType::kFloat32, {rows, 1}, {}});
  }
  const std::vector<Tensor> wanted = RunReference(call, inputs), got = RunKernel(*ChooseKernel(DeviceKind::kCuda, call), call, inputs);
  for (size_t k = 0; k < wanted.size(); ++k) {
    SCOPED_TRACE("output " + std::to_string(k));
    ExpectClose(got[k], wanted[k], k == 1 && op == "LayerNormCast" ? (narrow == DType::kFloat16 ? 0x1p-10 : 0x1p-7) : 5e-6);
  }
}

constexpr Types kFloat{DType::kFloat32, DType::kFloat32}, kDouble{DType::kFloat64, DType::kFloat64};

// One and several vectors per thread of a warp and of a block, of which the last ones may be past the row's end; one run and many, with as
// many rows as groups of threads, fewer and more.
constexpr std::pair<int64_t, int64_t> kHeld[] = {{1, 64},   {37, 100},  {3, 256},  {40, 260}, {9, 512},  {130, 768},
                                                 {17, 772}, {20, 1024}, {9, 1028}, {5, 2052}, {3, 4100}, {2, 8192}};

TEST(RowGradient, HeldRows) {
  EXPECT_EQ(HeldRows({37, 100}).runs(), 3);
  EXPECT_EQ(HeldRows({5000, 64}).runs(), 264);
  for (const std::string op : {"LayerNormGrad", "RmsNormGrad"}) {
    for (const auto& [rows, columns] : kHeld) {
      EXPECT_TRUE(HeldRows({rows, columns}).serve());
      Compare(op, rows, columns, kFloat);
    }
    Compare(op, 5000, 64, kFloat);
  }
  for (const DType narrow : {DType::kFloat16, DType::kBfloat16}) {
    for (const auto& [rows, columns] : kHeld) Compare("LayerNormGrad", rows, columns, {DType::kFloat32, narrow});
  }
  for (const int64_t columns : {60, 770, 8196}) EXPECT_FALSE(HeldRows({4, columns}).serve());
}

TEST(RowNormalization, HeldRows) {
  for (const auto& [rows, columns] : kHeld) {
    CompareForward("LayerNormalization", rows, columns, rows % 2 == 0);
    CompareForward("LayerNormCast", rows, columns, rows % 2 == 1, DType::kFloat16);
    CompareForward("LayerNormCast", rows, columns, true, DType::kBfloat16);
    CompareForward("RMSNormalization", rows, columns, false);
  }
}

TEST(RowNormalization, OtherRows) {
  for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{{5, 62}, {7, 770}, {3, 1026}, {2, 8196}}) {
    CompareForward("LayerNormalization", rows, columns, true);
    CompareForward("LayerNormCast", rows, columns, true, DType::kBfloat16);
    CompareForward("RMSNormalization", rows, columns, false);
  }
}

// Sums before and after a normalization; any operand or result that may be absent is.
void CompareSums(int64_t rows, int64_t columns, uint64_t seed) {
  SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns) + ", seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto any = [&](std::initializer_list<DType> types) { return *(types.begin() + random() % types.size()); };
  const DType to = any({DType::kFloat16, DType::kBfloat16}), other = any({DType::kFloat32, to});
  const OperandType x{DType::kFloat32, {rows, columns}, {}}, narrow{other, x.shape, {}}, rounded{to, x.shape, {}},
      row{DType::kFloat32, {columns}, {}};
  const Attributes attributes{{"axis", int64_t{-1}}, {"epsilon", 1e-5}, {"to", static_cast<int64_t>(to)}};
  const auto maybe = [&](const OperandType& operand) { return random() % 3 > 0 ? operand : OperandType(); };
  const OperandType inner = maybe(row);
  Attributes of_sum = attributes;
  of_sum.set("inner_epsilon", 0.25);
  const KernelCall calls[] = {{.op = "SumLayerNorm",
                               .domain = "gradloom",
                               .attributes = of_sum,
                               .inputs = {x, narrow, row, maybe(row), inner, inner.present() ? maybe(row) : inner},
                               .outputs = {maybe(x), maybe(x), rounded}},
                              {.op = "SumLayerNormGrad",
                               .domain = "gradloom",
                               .attributes = attributes,
                               .inputs = {narrow, maybe(x), x, row, maybe(x)},
                               .outputs = {maybe(x), maybe(row), maybe(row), maybe(rounded)}}};
  for (const KernelCall& call : calls) {
    SCOPED_TRACE(call.op);
    std::vector<Tensor> inputs;
    for (const OperandType& input : call.inputs) {
      inputs.push_back(!input.present() ? Tensor() : Narrowed(Random(DType::kFloat32, input.shape, random, 1), input.dtype));
    }
    const KernelRow* const kernel = ChooseKernel(DeviceKind::kCuda, call);
    EXPECT_EQ(kernel->name, "cuda.gradloom." + call.op);
    const std::vector<Tensor> wanted = RunReference(call, inputs), got = RunKernel(*kernel, call, inputs);
    for (size_t k = 0; k < wanted.size(); ++k) {
      SCOPED_TRACE("output " + std::to_string(k));
      if (!call.outputs[k].present()) continue;
      const DType dtype = call.outputs[k].dtype;
      ExpectClose(got[k], wanted[k], dtype == DType::kFloat32 ? 5e-6 : dtype == DType::kFloat16 ? 0x1p-10 : 0x1p-7);
    }
  }
}

TEST(RowNormalization, SumsOfHeldRows) {
  uint64_t seed = 1;
  for (const auto& [rows, columns] : kHeld) {
    for (int i = 0; i < 3; ++i) CompareSums(rows, columns, seed++);
  }
  // Other rows, for which the sum is a launch of its own.
  const OperandType x{DType::kFloat32, {4, 770}, {}}, row{DType::kFloat32, {770}, {}}, rounded{DType::kBfloat16, x.shape, {}};
  KernelCall call{.op = "SumLayerNorm", .domain = "gradloom", .attributes = {}, .inputs = {x, x, row, row}, .outputs = {x, x, rounded}};
  EXPECT_EQ(ChooseKernel(DeviceKind::kCuda, call), nullptr);
}

// A scale that repeats along the row, which is read through its strides.
TEST(RowGradient, RepeatedScale) {
  std::mt19937_64 random(1);
  const OperandType x{DType::kFloat32, {10, 3, 64}, {}}, scale{DType::kFloat32, {64}, {}};
  const KernelCall call{.op = "LayerNormalization",
                        .domain = "",
                        .attributes = {{"axis", int64_t{1}}, {"epsilon", 1e-5}},
                        .inputs = {x, scale},
                        .outputs = {x}};
  const std::vector<Tensor> inputs{Random(DType::kFloat32, x.shape, random, 3), Random(DType::kFloat32, scale.shape, random, 1)};
  ExpectClose(RunKernel(*ChooseKernel(DeviceKind::kCuda, call), call, inputs)[0], RunReference(call, inputs)[0], 5e-6);
}

TEST(RowGradient, RunsOfRows) {
  // Runs of one row, runs of unequal lengths, more rows than the permitted number of runs; sums of 8 KiB and more.
  const auto serve = [](int64_t rows, int64_t columns, int64_t number) { return RowRuns({rows, columns}).serve(number); };
  EXPECT_EQ(RowRuns({9, 601}).runs(), 3);
  EXPECT_EQ(RowRuns({3000, 514}).runs(), 640);
  for (const std::string op : {"LayerNormGrad", "RmsNormGrad"}) {
    for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{{1, 513}, {9, 601}, {3000, 514}, {70, 1023}, {6, 2002}}) {
      for (const Types& types : {kFloat, kDouble}) {
        EXPECT_TRUE(serve(rows, columns, DTypeBytes(types.wide)));
        Compare(op, rows, columns, types);
      }
    }
    Compare(op, 12, 4095, kFloat);
  }
  for (const DType narrow : {DType::kFloat16, DType::kBfloat16}) Compare("LayerNormGrad", 130, 770, {DType::kFloat32, narrow});
  EXPECT_FALSE(serve(4, 4097, 4));
  EXPECT_FALSE(serve(4, 2049, 8));
  EXPECT_FALSE(serve(4, 511, 4));
}

TEST(RowGradient, RowsTooShortOrTooLongForRuns) {
  for (const std::string op : {"LayerNormGrad", "RmsNormGrad"}) {
    for (const Types& types : {kFloat, kDouble}) {
      Compare(op, 40, 101, types);
      Compare(op, 9, 5001, types);
    }
  }
}

TEST(RowGradient, SubsetsOfGradients) {
  for (const int64_t columns : {512, 513}) {
    for (const std::vector<size_t>& absent : std::vector<std::vector<size_t>>{{0}, {1}, {2}, {1, 2}})
      Compare("LayerNormGrad", 30, columns, kFloat, absent);
    Compare("RmsNormGrad", 30, columns, kFloat, {1});
  }
  Compare("RmsNormGrad", 30, 101, kFloat, {0});
}

}  // namespace
}  // namespace gradloom
