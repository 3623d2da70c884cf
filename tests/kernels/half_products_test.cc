// Products and convolutions of 16-bit elements: kernels that widen parts of their operands, and oneDNN's bfloat16 kernels. Runs twice: with
// the machine's instructions, and with its bfloat16 instructions hidden from oneDNN.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/isa/loops.h"
#include "runtime/base/half.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/product_calls.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

struct Kind {
  const char* rows;  // prefix of the row names
  DType dtype;
};

class HalfProductsTest : public testing::TestWithParam<Kind> {
 protected:
  static OperandType Low(Shape shape) { return Plain(GetParam().dtype, std::move(shape)); }
  static std::string Row(const std::string& op) { return GetParam().rows + op; }

  static KernelCall MatMul(Shape a, Shape b, Shape y) { return MatMulCall(GetParam().dtype, {std::move(a), std::move(b), std::move(y)}); }

  // The rounding of float32 sums of k products of numbers below 1, then one step of the type.
  static Comparison Sums(int64_t k) {
    return {.absolute = 1e-6 * static_cast<double>(k),
            .relative = GetParam().dtype == DType::kFloat16 ? 0x1p-10 : 0x1p-7,
            .scale = 0,
            .low = -1,
            .high = 1,
            .widen = true};
  }

  // Small integers, whose sums are exact in float32, so the result is the exact sum rounded once.
  static Comparison Exact() {
    Comparison exact{.absolute = 0, .relative = 0};
    exact.widen = true;
    exact.fill = [](int, Tensor& tensor, std::mt19937_64& random) {
      Tensor integers(DType::kFloat32, tensor.shape());
      for (float& x : integers.as<float>()) x = static_cast<float>(static_cast<int>(random() % 17) - 8);
      tensor = Converted(integers.view(), tensor.dtype());
      return true;
    };
    return exact;
  }
};

TEST_P(HalfProductsTest, MatMul) {
  std::mt19937_64 random(TestSeed());
  for (const ProductShapes& shapes : MatMulShapes()) {
    const KernelCall call = MatMulCall(GetParam().dtype, shapes);
    ExpectSameAsReference(call, random, Sums(shapes.a[shapes.a.rank() - 1]), Row("MatMul"));
    ExpectSameAsReference(call, random, Exact(), Row("MatMul"));
  }
}

TEST_P(HalfProductsTest, GemmWithItsOptions) {
  std::mt19937_64 random(TestSeed());
  const auto biases = [](int64_t, int64_t n) { return std::vector<Shape>{{}, {n}, {1, n}, {1, 1}}; };
  ForEachGemm(GetParam().dtype, 120, biases, random, [&](const KernelCall& call, int64_t k) {
    ExpectSameAsReference(call, random, Sums(k), Row("Gemm"));
    ExpectSameAsReference(call, random, Exact(), Row("Gemm"));
  });
}

// However the work is divided.
TEST_P(HalfProductsTest, ThreadsChangeNoBit) {
  std::mt19937_64 random(TestSeed());
  KernelCall call = MatMul({150, 700}, {700, 410}, {150, 410});
  const KernelRow& row = *FindKernel(Row("MatMul"));
  std::vector<Tensor> results;
  std::vector<Tensor> operands;
  for (const OperandType& input : call.inputs) {
    Tensor wide(DType::kFloat32, input.shape);
    for (float& x : wide.as<float>()) x = std::uniform_real_distribution<float>(-1, 1)(random);
    operands.push_back(Converted(wide.view(), input.dtype));
  }
  for (int threads : {1, 2, 3, 8}) {
    call.threads = threads;
    Tensor scratch(DType::kUint8, {row.scratch_bytes(call) + 1});
    results.emplace_back(GetParam().dtype, call.outputs[0].shape);
    const void* in[] = {operands[0].data(), operands[1].data()};
    void* out[] = {results.back().data()};
    MakeCpuKernel(row, call)->Run(in, out, scratch.data(), nullptr);
    EXPECT_EQ(std::memcmp(results[0].data(), results.back().data(), static_cast<size_t>(results[0].bytes())), 0) << threads;
  }
}

TEST_P(HalfProductsTest, LeavesUnusualCallsToOthers) {
  KernelCall call = MatMul({3, 0}, {0, 4}, {3, 4});
  EXPECT_NE(Rejection(*FindKernel(Row("MatMul")), call), "");
  for (const auto& [a, b] : {std::pair<Shape, Shape>{{1, 8, 16}, {0, 16, 8}}, {{0, 8, 16}, {1, 16, 8}}}) {
    EXPECT_NE(Rejection(*FindKernel(Row("MatMul")), MatMul(a, b, {0, 8, 8})), "");
  }
  call = MatMul({3, 5}, {5, 4}, {3, 4});
  EXPECT_EQ(Rejection(*FindKernel(Row("MatMul")), call), "");
  call.inputs[1].dtype = DType::kFloat32;
  EXPECT_NE(Rejection(*FindKernel(Row("MatMul")), call), "");
  call = {.op = "Gemm", .domain = "", .attributes = {}, .inputs = {Low({3, 5}), Low({5, 4}), Low({3, 4})}, .outputs = {Low({3, 4})}};
  EXPECT_NE(Rejection(*FindKernel(Row("Gemm")), call), "");
}

INSTANTIATE_TEST_SUITE_P(Rows, HalfProductsTest,
                         testing::Values(Kind{"cpu.half.", DType::kFloat16}, Kind{"cpu.half.", DType::kBfloat16},
                                         Kind{"onednn.bfloat16.", DType::kBfloat16}),
                         [](const auto& info) {
                           return std::string(info.param.rows[0] == 'c' ? "own" : "onednn") + std::string(DTypeName(info.param.dtype));
                         });

// oneDNN's kernels come first if they are faster; otherwise they follow.
TEST(Bfloat16, IsChosenByInstructionSet) {
  const OperandType square = Plain(DType::kBfloat16, {64, 64}), image = Plain(DType::kBfloat16, {2, 16, 8, 8});
  const KernelCall product{.op = "MatMul", .domain = "", .attributes = {}, .inputs = {square, square}, .outputs = {square}};
  const KernelCall convolution{.op = "Conv",
                               .domain = "",
                               .attributes = {{"pads", std::vector<int64_t>{1, 1, 1, 1}}},
                               .inputs = {image, Plain(DType::kBfloat16, {16, 16, 3, 3})},
                               .outputs = {image}};
  const bool fast = HasFastBfloat16();
  EXPECT_TRUE(!fast || HasBfloat16());
  EXPECT_EQ(ChooseKernel(DeviceKind::kCpu, product)->name, fast ? "onednn.bfloat16.MatMul" : "cpu.half.MatMul");
  EXPECT_EQ(ChooseKernel(DeviceKind::kCpu, convolution)->name, fast ? "onednn.bfloat16.Conv" : "cpu.widened.Conv");
  if (std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr) {
    EXPECT_FALSE(HasBfloat16());
  }
}

struct ConvCase {
  Shape x, w;
  std::vector<int64_t> strides, pads, dilations;
  int64_t groups;
};

const ConvCase kConvolutions[] = {
    {{2, 3, 8, 9}, {4, 3, 3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 1},
    {{1, 16, 14, 14}, {32, 16, 3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}, 1},
    {{2, 8, 10, 11}, {8, 1, 3, 3}, {1, 1}, {0, 1, 2, 0}, {1, 1}, 8},
    {{2, 6, 12, 9}, {4, 3, 3, 2}, {2, 1}, {1, 0, 1, 1}, {2, 1}, 2},
    {{3, 5, 20}, {7, 5, 4}, {3}, {1, 1}, {1}, 1},
    {{4, 64, 7, 7}, {64, 64, 1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 1},
};

// In plain layouts, in the preferred layouts, and in another machine's preferred layouts if oneDNN has none here.
TEST(Bfloat16, Convolutions) {
  std::mt19937_64 random(TestSeed());
  const auto low = [](Shape shape) { return Plain(DType::kBfloat16, std::move(shape)); };
  for (const ConvCase& c : kConvolutions) {
    const Attributes attributes = {{"strides", c.strides}, {"pads", c.pads}, {"dilations", c.dilations}, {"group", c.groups}};
    const Shape y = Convolved(c.x, c.w, attributes);
    const auto call = [&](const char* op, const char* domain, std::vector<OperandType> inputs, const Shape& output) {
      return KernelCall{.op = op, .domain = domain, .attributes = attributes, .inputs = std::move(inputs), .outputs = {low(output)}};
    };
    for (const KernelCall& plain :
         {call("Conv", "", {low(c.x), low(c.w)}, y), call("Conv", "", {low(c.x), low(c.w), low({c.w[0]})}, y),
          call("ConvGradInput", "gradloom", {low(y), low(c.w)}, c.x), call("ConvGradWeight", "gradloom", {low(c.x), low(y)}, c.w)}) {
      // The largest sums are in the gradient of the weights, over all points of y.
      const int64_t terms = std::max(c.w.elements(), y.elements() / c.w[0]);
      const Comparison how{
          .absolute = 1e-6 * static_cast<double>(terms), .relative = 0x1p-7, .scale = 0, .low = -1, .high = 1, .widen = true};
      const std::string name = "onednn.bfloat16." + plain.op;
      const KernelRow& row = *FindKernel(name);
      if (!Rejection(row, plain).empty()) {
        // The library has only plain loops.
        const std::string chosen(ChooseKernel(DeviceKind::kCpu, plain)->name);
        EXPECT_TRUE(HasBfloat16() && chosen.starts_with("cpu.widened.")) << chosen;
        ExpectSameAsReference(plain, random, how, chosen);
        continue;
      }
      ExpectSameAsReference(plain, random, how, name);
      KernelCall wished = plain;
      if (HasBfloat16() && row.prefers(wished)) {
        // The layouts may be those of another kernel.
        ExpectSameAsReference(wished, random, how, std::string(ChooseKernel(DeviceKind::kCpu, wished)->name));
      }
      if (HasBfloat16() || c.groups > 1 || c.x.rank() != 4) continue;
      KernelCall other = plain;
      const Layout last = Layout::FromString("0231"), blocks = Layout::FromString("0123:1x8,0x16,1x2");
      for (auto* operands : {&other.inputs, &other.outputs}) {
        for (OperandType& operand : *operands) {
          if (operand.shape.rank() == 4) operand.layout = operand.shape == c.w ? blocks : last;
        }
      }
      ExpectSameAsReference(other, random, how, name);
    }
  }
}

// The gradient of weights by products of pairs: images smaller than a vector, windows over padding, strides, dilations, channels and points
// that fill no tile, and several blocks of points.
TEST(Bfloat16, GradientOfWeightsByPairs) {
  const ConvCase cases[] = {
      {{2, 64, 4, 4}, {64, 64, 3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 1},
      {{3, 37, 5, 7}, {70, 37, 3, 2}, {2, 1}, {0, 1, 2, 0}, {1, 1}, 1},
      {{2, 32, 9, 9}, {80, 32, 3, 3}, {1, 1}, {0, 0, 0, 0}, {2, 2}, 1},
      {{20, 33, 8, 8}, {65, 33, 1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 1},
      {{5, 40, 6}, {64, 40, 3}, {1}, {1, 1}, {1}, 1},
  };
  std::mt19937_64 random(TestSeed());
  for (const ConvCase& c : cases) {
    const Attributes attributes = {{"strides", c.strides}, {"pads", c.pads}, {"dilations", c.dilations}, {"group", c.groups}};
    const Shape y = Convolved(c.x, c.w, attributes);
    for (const DType dtype : {DType::kBfloat16, DType::kFloat32}) {
      KernelCall call{.op = "ConvGradWeight",
                      .domain = "gradloom",
                      .attributes = attributes,
                      .inputs = {Plain(DType::kBfloat16, c.x), Plain(DType::kBfloat16, y)},
                      .outputs = {Plain(dtype, c.w)}};
      KernelCall wished = call;
      const bool prefers = FindKernel("onednn.bfloat16.ConvGradWeight")->prefers(wished);
      const Layout last = ChannelsLast(c.x.rank());
      for (OperandType* operand : {&call.inputs[0], &call.inputs[1], &call.outputs[0]}) operand->layout = last;
      if (HasFastBfloat16() && dtype == DType::kBfloat16) {
        EXPECT_TRUE(prefers && wished.inputs[0].layout == last && wished.outputs[0].layout == last);
        EXPECT_EQ(ChooseKernel(DeviceKind::kCpu, call)->name, "cpu.bfloat16.ConvGradWeight");
      }
      const Comparison how{.absolute = 1e-6 * static_cast<double>(y.elements() / c.w[0]),
                           .relative = dtype == DType::kFloat32 ? 1e-6 : 0x1p-7,
                           .scale = 0,
                           .low = -1,
                           .high = 1,
                           .widen = true};
      ExpectSameAsReference(call, random, how, "cpu.bfloat16.ConvGradWeight");
    }
  }
}

// Every product of pairs that this machine has, with padding, a panel stride, and accumulation.
TEST(Bfloat16, ProductsOfPairs) {
  std::mt19937_64 random(TestSeed());
  std::vector<std::pair<std::string, PairProduct>> products;
  for (const char* name : {"baseline", "avx2", "avx512"}) {
    if (const Loops* loops = LoopsByName(name)) products.emplace_back(name, loops->multiply_pairs);
  }
  for (const char* name : {"avx512_bf16", "amx"}) {
    if (PairProduct product = PairProductByName(name)) products.emplace_back(name, product);
  }
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{16, 32, 32}, {48, 64, 96}, {32, 96, 64}}) {
    const int64_t a_row = k + 6, c_row = n + 5, b_panel = k / 2 * kPairColumns + 64;
    // Integers, whose sums are exact.
    const auto integer = [&] { return static_cast<float>(static_cast<int>(random() % 17) - 8); };
    std::vector<uint16_t> a(static_cast<size_t>(m * a_row));
    for (uint16_t& x : a) x = FloatToBfloat16(integer());
    std::vector<uint32_t> b(static_cast<size_t>(n / kPairColumns * b_panel));
    for (uint32_t& x : b) x = FloatToBfloat16(integer()) | uint32_t{FloatToBfloat16(integer())} << 16;
    std::vector<float> before(static_cast<size_t>(m * c_row));
    for (float& x : before) x = integer();
    for (const bool adds : {false, true}) {
      std::vector<float> wanted = before;
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          float sum = adds ? before[static_cast<size_t>(i * c_row + j)] : 0;
          for (int64_t e = 0; e < k; ++e) {
            const uint32_t pair = b[static_cast<size_t>(j / kPairColumns * b_panel + e / 2 * kPairColumns + j % kPairColumns)];
            const auto x = a[static_cast<size_t>(i * a_row + e)], y = static_cast<uint16_t>(e % 2 == 0 ? pair : pair >> 16);
            sum += Bfloat16ToFloat(x) * Bfloat16ToFloat(y);
          }
          wanted[static_cast<size_t>(i * c_row + j)] = sum;
        }
      }
      for (const auto& [name, product] : products) {
        std::vector<float> c = before;
        product({.m = m,
                 .n = n,
                 .k = k,
                 .a = a.data(),
                 .a_row = a_row,
                 .b = b.data(),
                 .b_panel = b_panel,
                 .c = c.data(),
                 .c_row = c_row,
                 .adds = adds});
        EXPECT_EQ(c, wanted) << name << " " << m << "x" << n << "x" << k << (adds ? " added" : "");
      }
    }
  }
}

}  // namespace
}  // namespace gradloom
