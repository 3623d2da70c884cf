// Compares convolutions by rows of windows with the reference kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/isa/loops.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/product_calls.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

OperandType Float(Shape shape) { return Plain(DType::kFloat32, std::move(shape)); }

OperandType Last(Shape shape) {
  OperandType operand = Float(std::move(shape));
  operand.layout = ChannelsLast(operand.shape.rank());
  return operand;
}

KernelCall Call(const std::string& op, const std::string& domain, std::vector<OperandType> inputs, std::vector<OperandType> outputs,
                Attributes attributes) {
  return {.op = op, .domain = domain, .attributes = std::move(attributes), .inputs = std::move(inputs), .outputs = std::move(outputs)};
}

// [O, I, kernel ...].
Shape Filters(int64_t outputs, int64_t inputs, const std::vector<int64_t>& kernel) {
  Shape w{outputs, inputs};
  for (const int64_t extent : kernel) w.push_back(extent);
  return w;
}

// The weight gradient of convolutions with few channels, of one to three dimensions: windows and strides of every kind, windows outside the
// input, gaps within windows, chunks of several rows, of one, and of a part of a row, and weights in any layout.
TEST(WindowConvolution, WeightGradients) {
  std::mt19937_64 random(TestSeed());
  const KernelRow& row = *FindKernel("cpu.WindowConvGradWeight");
  const auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  std::array<int, 6> served{};
  for (int i = 0; i < 300; ++i) {
    const int rank = 3 + i % 3;
    Shape x{pick(1, 3), pick(1, 20)};
    std::vector<int64_t> kernel, strides, dilations, begin, end;
    for (int axis = 2; axis < rank; ++axis) {
      x.push_back(axis + 1 < rank ? pick(1, 9) : rank == 3 ? pick(16, 400) : pick(1, 40));
      strides.push_back(pick(1, 3)), dilations.push_back(pick(1, 3)), kernel.push_back(pick(1, axis + 1 < rank ? 4 : 6));
      const int64_t reach = (kernel.back() - 1) * dilations.back() + 1;
      begin.push_back(pick(0, reach));
      end.push_back(std::max<int64_t>(0, reach - x[axis] - begin.back()) + pick(0, 2));
    }
    begin.insert(begin.end(), end.begin(), end.end());
    const Attributes attributes = {{"strides", strides}, {"pads", begin}, {"dilations", dilations}};
    const Shape w = Filters(pick(1, 20), x[1], kernel), y = Convolved(x, w, attributes);
    OperandType weights = Float(w);
    if (rank == 5 && i % 2 == 0) weights.layout = Layout::FromString("02341:0x8");
    KernelCall call = Call("ConvGradWeight", "gradloom", {Last(x), Last(y)}, {weights}, attributes);
    if (!Rejection(row, call).empty()) continue;
    ++served[static_cast<size_t>(rank)];
    SCOPED_TRACE(x.ToString() + " " + w.ToString());
    ExpectSameAsReference(call, random, {.absolute = 1e-4, .relative = 1e-4}, "cpu.WindowConvGradWeight");
  }
  const bool vectors = BestLoops().name != std::string_view("baseline");
  for (size_t rank = 3; rank <= 5; ++rank) EXPECT_EQ(served[rank] > 0, vectors) << rank << "; seed " << TestSeed();
}

// Forward convolutions that the library has no optimized kernel for: more padding than its tiles have points, long windows of one channel,
// few channels of y, rows that see only padding, and chunks of several rows, the last one smaller.
TEST(WindowConvolution, Forward) {
  std::mt19937_64 random(TestSeed());
  const KernelRow& row = *FindKernel("cpu.WindowConv");
  struct Case {
    Shape x;
    int64_t outputs;
    std::vector<int64_t> kernel, strides, pads, dilations;
  };
  const Case cases[] = {{{3, 1, 7, 90}, 8, {1, 64}, {1, 1}, {0, 32, 0, 32}, {1, 1}},
                        {{3, 1, 7, 90}, 32, {1, 64}, {1, 1}, {0, 32, 0, 32}, {1, 1}},
                        {{2, 1, 21, 60}, 5, {2, 51}, {2, 1}, {3, 25, 0, 20}, {2, 1}},
                        {{2, 3, 23, 20}, 3, {9, 9}, {1, 1}, {4, 4, 4, 4}, {1, 1}},
                        {{2, 3, 19, 20}, 64, {9, 9}, {1, 1}, {4, 4, 4, 4}, {1, 1}},
                        {{2, 3, 40, 47}, 20, {11, 11}, {4, 4}, {2, 2, 2, 2}, {1, 1}},
                        {{2, 2, 300}, 3, {33}, {1}, {16, 16}, {1}},
                        {{2, 1, 900}, 9, {251}, {1}, {125, 125}, {1}},
                        {{1, 1, 3, 4, 70}, 17, {2, 3, 40}, {1, 2, 1}, {1, 0, 20, 0, 1, 20}, {1, 1, 1}}};
  int served = 0;
  for (const Case& c : cases) {
    const Attributes attributes = {{"strides", c.strides}, {"pads", c.pads}, {"dilations", c.dilations}};
    const Shape w = Filters(c.outputs, c.x[1], c.kernel), y = Convolved(c.x, w, attributes);
    for (const bool bias : {false, true}) {
      std::vector<OperandType> inputs = {Last(c.x), Float(w)};
      if (bias) inputs.push_back(Float({c.outputs}));
      const KernelCall call = Call("Conv", "", std::move(inputs), {Last(y)}, attributes);
      if (!Rejection(row, call).empty()) continue;
      ++served;
      SCOPED_TRACE(c.x.ToString() + " " + w.ToString());
      ExpectSameAsReference(call, random, {.absolute = 1e-4, .relative = 1e-4}, "cpu.WindowConv");
      // As a plain call asks for it.
      KernelCall plain = call;
      plain.inputs[0].layout = plain.outputs[0].layout = {};
      ASSERT_TRUE(ChooseKernel(DeviceKind::kCpu, plain)->prefers(plain));
      EXPECT_EQ(ChooseKernel(DeviceKind::kCpu, plain)->name, "cpu.WindowConv");
    }
  }
  // With AVX-512, the library has optimized kernels for more of them.
  const std::string_view isa = BestLoops().name;
  EXPECT_GE(served, isa == "avx2" ? 9 : isa == "avx512" ? 1 : 0);
  EXPECT_TRUE(isa != "baseline" || served == 0) << served;
}

}  // namespace
}  // namespace gradloom
