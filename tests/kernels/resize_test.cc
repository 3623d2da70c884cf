// Compares Resize and its gradient with the reference kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kernels/cpu/cpu_kernels.h"
#include "tests/kernels/compare.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

struct ResizeCase {
  Shape x, y;
  std::vector<float> scales;  // empty: given by the extents of Y
};

const ResizeCase kCases[] = {
    {{2, 3, 4, 5}, {2, 3, 8, 10}, {}},
    {{2, 3, 9, 7}, {2, 3, 4, 3}, {}},
    {{16, 8, 32, 32}, {16, 8, 64, 64}, {}},
    {{2, 3, 11}, {2, 3, 30}, {}},
    {{1, 2, 3, 4, 5}, {1, 2, 6, 4, 9}, {}},
    {{1, 2, 3, 4, 5}, {1, 2, 2, 7, 11}, {}},
    {{2, 3, 1, 6}, {2, 3, 5, 6}, {}},
    {{3, 4, 5, 2}, {3, 4, 5, 7}, {1, 1, 1.1f, 3.5f}},  // an axis that keeps its extent but moves its elements
    {{3, 4, 2, 5}, {3, 4, 7, 5}, {1, 1, 3.5f, 1.1f}},
    {{4, 3, 5, 6}, {7, 5, 5, 3}, {}},
};

KernelCall Call(const ResizeCase& c, bool gradient, const Attributes& attributes, const Layout& layout) {
  KernelCall call{.op = gradient ? "ResizeGrad" : "Resize", .domain = gradient ? "gradloom" : "", .attributes = attributes};
  OperandType x = Plain(DType::kFloat32, c.x), y = Plain(DType::kFloat32, c.y);
  x.layout = y.layout = layout;
  const bool scaled = !c.scales.empty();
  const OperandType extents = Plain(scaled ? DType::kFloat32 : DType::kInt64, {c.x.rank()});
  call.inputs = {gradient ? y : x, {}, scaled ? extents : OperandType{}, scaled ? OperandType{} : extents};
  call.outputs = {gradient ? x : y};
  return call;
}

void Check(const ResizeCase& c, const Attributes& attributes, const Layout& layout, std::mt19937_64& random) {
  Comparison how;
  how.fill = [&](int input, Tensor& tensor, std::mt19937_64&) {
    if (input == 2) std::copy(c.scales.begin(), c.scales.end(), tensor.as<float>().begin());
    if (input == 3) std::copy(c.y.begin(), c.y.end(), tensor.as<int64_t>().begin());
    return input > 0;
  };
  how.scale = 1;  // sums of several products in another order
  ExpectSameAsReference(Call(c, false, attributes, layout), random, how, "cpu.Resize");
  ExpectSameAsReference(Call(c, true, attributes, layout), random, how, "cpu.ResizeGrad");
}

TEST(Resize, ForwardAndGradients) {
  std::mt19937_64 random(TestSeed());
  for (const ResizeCase& c : kCases) {
    for (const char* mode : {"nearest", "linear", "cubic"}) {
      for (const char* place : {"half_pixel", "align_corners", "asymmetric"}) {
        for (int64_t more : {0, 1}) {
          const bool linear = mode != std::string("nearest"), cubic = mode == std::string("cubic");
          const Attributes attributes{{"mode", std::string(mode)},
                                      {"coordinate_transformation_mode", std::string(place)},
                                      {"antialias", linear ? more : 0},
                                      {"exclude_outside", cubic ? more : 0}};
          Check(c, attributes, {}, random);
        }
      }
    }
  }
}

TEST(Resize, ChannelsInnermost) {
  std::mt19937_64 random(TestSeed());
  for (const ResizeCase& c : kCases) {
    if (c.x.rank() != 4) continue;
    for (const char* mode : {"nearest", "linear"}) Check(c, {{"mode", std::string(mode)}}, {.order = {0, 2, 3, 1}, .blocks = {}}, random);
  }
}

// Sizes are data here, so a step must not use the tables of the previous one.
TEST(Resize, FollowsItsScales) {
  const ResizeCase c{{1, 1, 4}, {1, 1, 8}, {1, 1, 2}};
  for (const CpuKernel* kernel : CpuKernels()) {
    if (kernel->row.name != "cpu.Resize") continue;
    const KernelCall call =
        Call(c, false, {{"mode", std::string("linear")}, {"coordinate_transformation_mode", std::string("asymmetric")}}, {});
    const auto made = MakeCpuKernel(kernel->row, call);
    const float x[] = {0, 1, 2, 3};
    std::vector<std::byte> scratch(static_cast<size_t>(kernel->row.scratch_bytes(call)));
    for (float scale : {2.0f, 4.0f, 2.0f}) {
      const float scales[] = {1, 1, scale};
      float y[8];
      const void* inputs[] = {x, nullptr, scales, nullptr};
      void* outputs[] = {y};
      made->Run(inputs, outputs, scratch.data(), nullptr);
      for (int i = 0; i < 8; ++i) EXPECT_FLOAT_EQ(y[i], std::min(3.0f, static_cast<float>(i) / scale)) << scale << ", element " << i;
    }
    return;
  }
  FAIL() << "no such kernel";
}

}  // namespace
}  // namespace gradloom
