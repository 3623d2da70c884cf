// Gradients of convolutions' weights by Gradloom's kernel, which divides them by their shapes, compared with the reference. GRADLOOM_SEED=N
// draws different calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/catalog/kernel_work.h"
#include "kernels/catalog/physical.h"
#include "kernels/cuda/rows/convolution.h"
#include "tests/cuda/random_calls.h"

namespace gradloom {
namespace {

using namespace random_calls;  // NOLINT: all of it

KernelCall WeightGradient(const Shape& x, const Shape& y, const Shape& w, Attributes attributes = {}, DType dtype = DType::kFloat32) {
  attributes.set("shape", w.dims());
  return {.op = "ConvGradWeight",
          .domain = "gradloom",
          .attributes = std::move(attributes),
          .inputs = {{dtype, x, {}}, {dtype, y, {}}},
          .outputs = {{dtype, w, {}}}};
}

// Sums of few windows and of many, of all ranks, with and without groups, in row-major order and with channels innermost.
TEST(WeightGradient, AgreesWithTheReference) {
  int64_t most_parts = 1;
  bool filters[5] = {};
  ForEachSeed(40, [&](Random& r) {
    const int64_t rank = r.Int(1, 3), groups = r.Int(1, 3), channels = r.Int(1, 3), of_group = r.Int(1, 8);
    const auto axes = static_cast<size_t>(rank);
    Shape x{r.Int(1, 9), groups * channels}, w{groups * of_group, channels}, y{x[0], groups * of_group};
    Ints strides(axes), dilations(axes), pads(2 * axes);
    for (size_t axis = 0; axis < axes; ++axis) {
      const int64_t kernel = r.Int(1, 4), windows = r.Int(1, rank == 1 ? 40 : 9);
      strides[axis] = r.Int(1, 3), dilations[axis] = r.Int(1, 2);
      const int64_t reach = (kernel - 1) * dilations[axis] + 1, covered = (windows - 1) * strides[axis] + reach;
      pads[axis] = r.Int(0, 4), pads[axis + axes] = r.Int(0, 4);
      // Elements after the last window, and windows that lie in the padding.
      x.push_back(std::max<int64_t>(covered - pads[axis] - pads[axis + axes] + r.Int(0, strides[axis] - 1), 1));
      y.push_back((x[static_cast<int>(axis) + 2] + pads[axis] + pads[axis + axes] - reach) / strides[axis] + 1);
      w.push_back(kernel);
    }
    const Attributes attributes{{"strides", strides}, {"dilations", dilations}, {"pads", pads}, {"group", groups}};
    const KernelCall call = WeightGradient(x, y, w, attributes);
    SCOPED_TRACE(Describe(call));
    const std::vector<Tensor> values{r.Wholes(x, -8, 8, DType::kFloat32), r.Wholes(y, -8, 8, DType::kFloat32)};
    const Tensor wanted = RunReference(call, values)[0];
    most_parts = std::max(most_parts, WeightGradientPartsOf(call).parts);
    filters[WeightGradientPartsOf(call).filters] = true;
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
      KernelCall each = WeightGradient(x, y, w, attributes, dtype);
      std::vector<Tensor> operands;
      for (const Tensor& value : values) operands.push_back(Converted(value.view(), dtype));
      for (const bool last : {false, true}) {
        for (auto* list : {&each.inputs, &each.outputs}) {
          for (OperandType& operand : *list) operand.layout = last ? ChannelsLast(operand.shape.rank()) : Layout{};
        }
        for (const std::string row : {"cuda.gradloom.ConvGradWeight", "cuda.small.gradloom.ConvGradWeight"}) {
          if (row.starts_with("cuda.small.") && (last || dtype != DType::kFloat32)) continue;
          ASSERT_EQ(Rejection(*FindKernel(row), each), "");
          // Sums of whole numbers are exact in float32.
          const Tensor got = Converted(RunKernel(*FindKernel(row), each, operands)[0].view(), DType::kFloat64);
          const double rounding = dtype == DType::kFloat16 ? 0x1p-11 : dtype == DType::kBfloat16 ? 0x1p-8 : 0;
          for (int64_t i = 0; i < wanted.elements(); ++i) {
            const double expected = ElementAsDouble(wanted.view(), i);
            ASSERT_NEAR(ElementAsDouble(got.view(), i), expected, std::fabs(expected) * rounding) << row << " element " << i;
          }
        }
      }
    }
  });
  EXPECT_GT(most_parts, 4);
  EXPECT_TRUE(filters[1] && filters[2] && filters[4]);
}

// cuDNN is slow at small ones in float32. In 16 bits it has tensor cores, and in any type it is better at large ones.
TEST(WeightGradient, OfSmallConvolutionsIsOurs) {
  const auto chosen = [](const KernelCall& call) { return std::string(ChooseKernel(DeviceKind::kCuda, call)->name); };
  const std::string ours = "cuda.small.gradloom.ConvGradWeight", library = "cudnn.gradloom.ConvGradWeight";
  EXPECT_EQ(chosen(WeightGradient({64, 1, 28, 28}, {64, 6, 28, 28}, {6, 1, 5, 5}, {{"pads", Ints{2, 2, 2, 2}}})), ours) << "LeNet's first";
  const KernelCall second = WeightGradient({64, 6, 14, 14}, {64, 16, 10, 10}, {16, 6, 5, 5});
  EXPECT_EQ(chosen(second), ours);
  EXPECT_EQ(chosen(WeightGradient({64, 6, 14, 14}, {64, 16, 10, 10}, {16, 6, 5, 5}, {}, DType::kBfloat16)), library);
  EXPECT_EQ(chosen(WeightGradient({256, 6, 14, 14}, {256, 16, 10, 10}, {16, 6, 5, 5})), library);

  // 600 threads for each part.
  const WeightGradientParts parts = WeightGradientPartsOf(second);
  EXPECT_EQ(parts.filters, 4);
  EXPECT_EQ(parts.threads, 16 * 6 * 25 / 4);
  EXPECT_EQ(parts.parts, 64 * 10 * 10 / 128);
  double launches = 0;
  for (const KernelWork& work : WorkOf(*FindKernel(ours), second, {})) launches += work.launches;
  EXPECT_EQ(launches, 2);
}

}  // namespace
}  // namespace gradloom
