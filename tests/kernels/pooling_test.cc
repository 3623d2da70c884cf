// Compares pooling and its gradients with the reference kernels.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/reference/reference.h"
#include "runtime/base/windows.h"
#include "tests/kernels/compare.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

struct PoolCase {
  Shape x;
  std::vector<int64_t> kernel, strides, pads, dilations;
  bool ceil_mode = false;
};

const PoolCase kPools[] = {
    {{3, 4, 8, 8}, {2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}},
    {{64, 16, 14, 14}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}},
    {{2, 3, 9, 7}, {3, 2}, {1, 2}, {1, 0, 0, 1}, {1, 1}, true},
    {{2, 3, 11}, {3}, {2}, {1, 1}, {2}},
    {{1, 2, 5, 6, 7}, {2, 3, 2}, {1, 2, 1}, {0, 1, 0, 1, 1, 0}, {1, 1, 1}},
};

KernelCall Call(const std::string& op, const std::string& domain, std::vector<Shape> inputs, const Shape& output, Attributes attributes) {
  KernelCall call{.op = op, .domain = domain, .attributes = std::move(attributes), .outputs = {Plain(DType::kFloat32, output)}};
  for (Shape& shape : inputs) call.inputs.push_back(Plain(DType::kFloat32, std::move(shape)));
  return call;
}

TEST(Pooling, ForwardAndGradients) {
  std::mt19937_64 random(TestSeed());
  for (const PoolCase& c : kPools) {
    Attributes attributes = {{"kernel_shape", c.kernel},
                             {"strides", c.strides},
                             {"pads", c.pads},
                             {"dilations", c.dilations},
                             {"ceil_mode", int64_t{c.ceil_mode}}};
    const Windows windows = WindowsOf(attributes, c.x, c.kernel);
    Shape y{c.x[0], c.x[1]};
    for (int dim = 0; dim < windows.rank(); ++dim) y.push_back(windows.Count(dim, c.x[dim + 2], c.ceil_mode));
    ExpectSameAsReference(Call("MaxPool", "", {c.x}, y, attributes), random, {}, "cpu.MaxPool");
    KernelCall indexed = Call("MaxPool", "", {c.x}, y, attributes);
    indexed.outputs.push_back(Plain(DType::kInt64, y));
    ExpectSameAsReference(indexed, random, {}, "cpu.MaxPool.indices");
    for (auto* operands : {&indexed.inputs, &indexed.outputs}) {
      for (OperandType& operand : *operands) operand.layout = ChannelsLast(operand.shape.rank());
    }
    ExpectSameAsReference(indexed, random, {}, "cpu.MaxPool.indices");
    ExpectSameAsReference(Call("MaxPoolGrad", "gradloom", {c.x, y}, c.x, attributes), random, {}, "cpu.MaxPoolGrad");
    for (int64_t include : {0, 1}) {
      attributes.set("count_include_pad", include);
      ExpectSameAsReference(Call("AveragePool", "", {c.x}, y, attributes), random, {}, "cpu.AveragePool");
      ExpectSameAsReference(Call("AveragePoolGrad", "gradloom", {y}, c.x, attributes), random, {}, "cpu.AveragePoolGrad");
    }
  }
}

// Padding makes the window valid, and nearly all of it lies in the padding.
TEST(Pooling, WindowMuchLargerThanTheInput) {
  const int64_t large = int64_t{1} << 36;
  const Tensor x[] = {Tensor::From<float>({1, 2, 3, 6}, {1, 1, 4})};
  for (const auto& [op, include, wanted] : {std::tuple{"MaxPool", 0, 6.0f}, {"AveragePool", 0, 3.0f}, {"AveragePool", 1, 12 * 0x1p-36f}}) {
    Attributes attributes = {{"kernel_shape", std::vector<int64_t>{large}}, {"pads", std::vector<int64_t>{large - 4, 0}}};
    if (op[0] == 'A') attributes.set("count_include_pad", int64_t{include});
    EXPECT_EQ(RunReference(Call(op, "", {{1, 1, 4}}, {1, 1, 1}, attributes), x)[0].as<float>()[0], wanted) << op << " " << include;
  }
}

// Windows that do not fit the shapes, as in a hostile plan, are rejected and not read out of bounds.
TEST(Pooling, RejectsInvalidOperands) {
  const Attributes attributes = {{"kernel_shape", std::vector<int64_t>{2, 2}}, {"strides", std::vector<int64_t>{2, 2}}};
  const auto rejects = [&](const KernelCall& call) {
    for (const CpuKernel* kernel : CpuKernels()) {
      if (kernel->row.name == "cpu.MaxPool") return kernel->row.rejects(call);
    }
    return std::string("no such kernel");
  };
  EXPECT_EQ(rejects(Call("MaxPool", "", {{1, 2, 8, 8}}, {1, 2, 4, 4}, attributes)), "");
  EXPECT_NE(rejects(Call("MaxPool", "", {{1, 2, 8, 8}}, {1, 3, 4, 4}, attributes)), "");
  EXPECT_NE(rejects(Call("MaxPool", "", {{1, 2, 8, 8}}, {1, 2, 4}, attributes)), "");
  EXPECT_NE(rejects(Call("MaxPool", "", {{1, 2, 8}}, {1, 2, 4}, attributes)), "");
}

}  // namespace
}  // namespace gradloom
