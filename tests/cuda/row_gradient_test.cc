// Gradients of normalizations over long rows, which the table of operators does not cover: computed by blocks over runs of rows, and for
// rows that are too long for that.
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
    if (!got[k].defined()) continue;
    double largest = 0;
    for (int64_t i = 0; i < wanted[k].elements(); ++i) largest = std::max(largest, std::fabs(ElementAsDouble(wanted[k].view(), i)));
    const double allowed = largest * (types.wide == DType::kFloat64 ? 1e-13 : 5e-6);
    for (int64_t i = 0; i < wanted[k].elements(); ++i) {
      ASSERT_NEAR(ElementAsDouble(got[k].view(), i), ElementAsDouble(wanted[k].view(), i), allowed) << "output " << k << " element " << i;
    }
  }
}

constexpr Types kFloat{DType::kFloat32, DType::kFloat32}, kDouble{DType::kFloat64, DType::kFloat64};

TEST(RowGradient, RunsOfRows) {
  // Runs of one row, runs of unequal lengths, more rows than the permitted number of runs; sums of 8 KiB and more.
  const auto serve = [](int64_t rows, int64_t columns, int64_t number) { return RowRuns({rows, columns}).serve(number); };
  EXPECT_EQ(RowRuns({9, 600}).runs(), 3);
  EXPECT_EQ(RowRuns({3000, 512}).runs(), 640);
  for (const std::string op : {"LayerNormGrad", "RmsNormGrad"}) {
    for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{{1, 512}, {9, 600}, {3000, 512}, {70, 1024}, {6, 2000}}) {
      for (const Types& types : {kFloat, kDouble}) {
        EXPECT_TRUE(serve(rows, columns, DTypeBytes(types.wide)));
        Compare(op, rows, columns, types);
      }
    }
    Compare(op, 12, 4096, kFloat);
  }
  for (const DType narrow : {DType::kFloat16, DType::kBfloat16}) Compare("LayerNormGrad", 130, 768, {DType::kFloat32, narrow});
  EXPECT_FALSE(serve(4, 4097, 4));
  EXPECT_FALSE(serve(4, 2049, 8));
  EXPECT_FALSE(serve(4, 511, 4));
}

TEST(RowGradient, RowsTooShortOrTooLongForRuns) {
  for (const std::string op : {"LayerNormGrad", "RmsNormGrad"}) {
    for (const Types& types : {kFloat, kDouble}) {
      Compare(op, 40, 100, types);
      Compare(op, 9, 5000, types);
    }
  }
}

TEST(RowGradient, SubsetsOfGradients) {
  Compare("LayerNormGrad", 30, 512, kFloat, {0});
  Compare("LayerNormGrad", 30, 512, kFloat, {1});
  Compare("LayerNormGrad", 30, 512, kFloat, {2});
  Compare("LayerNormGrad", 30, 512, kFloat, {1, 2});
  Compare("RmsNormGrad", 30, 512, kFloat, {1});
  Compare("RmsNormGrad", 30, 100, kFloat, {0});
}

}  // namespace
}  // namespace gradloom
