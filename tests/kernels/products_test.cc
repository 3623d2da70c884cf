// Compares matrix products and convolutions with the reference kernels.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/isa/loops.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/product_calls.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

OperandType Float(Shape shape) { return Plain(DType::kFloat32, std::move(shape)); }

KernelCall Call(const std::string& op, const std::string& domain, std::vector<OperandType> inputs, Shape output, Attributes attributes) {
  return {
      .op = op, .domain = domain, .attributes = std::move(attributes), .inputs = std::move(inputs), .outputs = {Float(std::move(output))}};
}

// Sums of k products of numbers below 1: the rounding of float compared with double.
const Comparison kClose{.absolute = 1e-6, .relative = 2e-6, .scale = 1, .low = -1, .high = 1};

TEST(MatMul, Shapes) {
  std::mt19937_64 random(TestSeed());
  for (const ProductShapes& shapes : MatMulShapes()) ExpectSameAsReference(MatMulCall(DType::kFloat32, shapes), random, kClose);
}

TEST(MatMul, GemmWithItsOptions) {
  std::mt19937_64 random(TestSeed());
  const auto biases = [](int64_t m, int64_t n) { return std::vector<Shape>{{}, {n}, {1, n}, {m, 1}, {m, n}, {1, 1}}; };
  ForEachGemm(DType::kFloat32, 160, biases, random, [&](const KernelCall& call, int64_t) { ExpectSameAsReference(call, random, kClose); });
}

// However our own blocks of c are divided among threads; with sums of one part and of several, and several matrices.
TEST(MatMul, ThreadsChangeNoBitOfBlocks) {
  std::mt19937_64 random(TestSeed());
  const ProductShapes all[] = {
      {{150, 700}, {700, 410}, {150, 410}}, {{900, 200}, {200, 90}, {900, 90}}, {{5, 60, 70}, {5, 70, 50}, {5, 60, 50}}};
  for (const ProductShapes& shapes : all) {
    KernelCall call = MatMulCall(DType::kFloat32, shapes);
    const KernelRow& row = *FindKernel("cpu.blocked.MatMul");
    ASSERT_EQ(Rejection(row, call), "");
    Tensor a(DType::kFloat32, shapes.a), b(DType::kFloat32, shapes.b);
    for (Tensor* operand : {&a, &b}) {
      for (float& x : operand->as<float>()) x = std::uniform_real_distribution<float>(-1, 1)(random);
    }
    std::vector<Tensor> results;
    for (int threads : {1, 2, 3, 8}) {
      call.threads = threads;
      Tensor scratch(DType::kUint8, {row.scratch_bytes(call) + 1});
      results.emplace_back(DType::kFloat32, shapes.y);
      const void* in[] = {a.data(), b.data()};
      void* out[] = {results.back().data()};
      MakeCpuKernel(row, call)->Run(in, out, scratch.data(), nullptr);
      EXPECT_EQ(std::memcmp(results[0].data(), results.back().data(), static_cast<size_t>(results[0].bytes())), 0) << threads;
    }
  }
}

TEST(MatMul, IsChosenByInstructionSet) {
  const auto chosen = [](const ProductShapes& shapes) {
    return std::string(ChooseKernel(DeviceKind::kCpu, MatMulCall(DType::kFloat32, shapes))->name);
  };
  const bool blocked = std::string_view(BestLoops().name) == "avx2";
  EXPECT_EQ(chosen({{64, 64}, {64, 64}, {64, 64}}), blocked ? "cpu.blocked.MatMul" : "onednn.MatMul");
  // Packing the right operand would take longer than the product.
  EXPECT_EQ(chosen({{1, 512}, {512, 512}, {1, 512}}), "cpu.few_rows.MatMul");
  EXPECT_EQ(chosen({{2, 512}, {512, 512}, {2, 512}}), "onednn.MatMul");
  EXPECT_EQ(chosen({{1, 65536}, {65536, 64}, {1, 64}}), "onednn.MatMul");
  EXPECT_EQ(chosen({{4, 4}, {4, 4}, {4, 4}}), "cpu.MatMul");
}

// Rows of either operand that are 4 KiB apart and share sets of the caches; with and without an addend.
TEST(MatMul, RowsAPageApart) {
  std::mt19937_64 random(TestSeed());
  for (int64_t ta : {0, 1}) {
    for (int64_t tb : {0, 1}) {
      for (const Shape& extents : {Shape{1024, 40, 300}, Shape{33, 1024, 260}, Shape{2048, 32, 256}}) {
        const int64_t m = extents[0], n = extents[1], k = extents[2];
        const Shape a = ta != 0 ? Shape{k, m} : Shape{m, k}, b = tb != 0 ? Shape{n, k} : Shape{k, n};
        const Attributes attributes = {{"transA", ta}, {"transB", tb}};
        ExpectSameAsReference(Call("Gemm", "", {Float(a), Float(b)}, {m, n}, attributes), random, kClose);
        ExpectSameAsReference(Call("Gemm", "", {Float(a), Float(b), Float({n})}, {m, n}, attributes), random, kClose);
      }
    }
  }
}

// Long sums with few results, which the library may divide among threads.
TEST(MatMul, LongSums) {
  std::mt19937_64 random(TestSeed());
  const Comparison close{.absolute = 1e-5, .relative = 1e-5, .scale = 1, .low = -1, .high = 1};
  for (const Shape& extents : {Shape{64, 64, 20000}, Shape{8, 16, 50000}, Shape{1, 100, 4096}, Shape{10, 3000, 32}, Shape{768, 64, 1024}}) {
    const int64_t m = extents[0], n = extents[1], k = extents[2];
    ExpectSameAsReference(Call("Gemm", "", {Float({k, m}), Float({k, n})}, {m, n}, {{"transA", int64_t{1}}}), random, close);
    ExpectSameAsReference(Call("MatMul", "", {Float({m, k}), Float({k, n})}, {m, n}, {}), random, close);
    for (const Shape& bias : {Shape{}, Shape{n}, Shape{m, 1}, Shape{m, n}}) {
      const Attributes attributes = {{"alpha", 0.5}, {"transA", int64_t{1}}, {"transB", int64_t{1}}};
      ExpectSameAsReference(Call("Gemm", "", {Float({k, m}), Float({n, k}), Float(bias)}, {m, n}, attributes), random, close);
    }
    if (m == 1 || k < 2048) continue;
    const Attributes scaled = {{"alpha", 0.5}, {"beta", -2.5}};
    ExpectSameAsReference(Call("Gemm", "", {Float({m, k}), Float({k, n}), Float({n})}, {m, n}, scaled), random, close, "cpu.blocked.Gemm");
  }
}

// Few rows with a matrix that is read in place: all numbers of rows, lengths that fill no vector, and every number of threads.
TEST(MatMul, FewRows) {
  std::mt19937_64 random(TestSeed());
  for (int64_t m = 1; m <= kFewRows; ++m) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1, 32}, {37, 95}, {130, 256}, {3, 4100}, {2100, 33}}) {
      for (int64_t tb : {1, 0}) {
        if (tb == 0 && (m > 1 || n < 32)) continue;
        KernelCall call = Call("Gemm", "", {Float({m, k}), Float(tb != 0 ? Shape{n, k} : Shape{k, n}), Float({n})}, {m, n},
                               {{"transB", tb}, {"alpha", 0.5}, {"beta", -2.0}});
        ExpectSameAsReference(call, random, {.absolute = 1e-5, .relative = 1e-5, .scale = 1, .low = -1, .high = 1}, "cpu.few_rows.Gemm");
        const KernelRow& row = *FindKernel("cpu.few_rows.Gemm");
        Tensor a(DType::kFloat32, call.inputs[0].shape), b(DType::kFloat32, call.inputs[1].shape), bias(DType::kFloat32, {n});
        for (Tensor* operand : {&a, &b, &bias}) {
          for (float& x : operand->as<float>()) x = std::uniform_real_distribution<float>(-1, 1)(random);
        }
        std::vector<Tensor> results;
        for (int threads : {1, 2, 3, 8}) {
          call.threads = threads;
          results.emplace_back(DType::kFloat32, Shape{m, n});
          const void* in[] = {a.data(), b.data(), bias.data()};
          void* out[] = {results.back().data()};
          MakeCpuKernel(row, call)->Run(in, out, nullptr, nullptr);
          EXPECT_EQ(std::memcmp(results[0].data(), results.back().data(), static_cast<size_t>(results[0].bytes())), 0) << threads;
        }
      }
    }
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
    {{1, 2, 5, 6, 7}, {3, 2, 2, 3, 2}, {1, 2, 1}, {0, 1, 0, 1, 1, 0}, {1, 1, 1}, 1},
    {{4, 64, 7, 7}, {64, 64, 1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 1},
};

Attributes AttributesOf(const ConvCase& c) {
  return {{"strides", c.strides}, {"pads", c.pads}, {"dilations", c.dilations}, {"group", c.groups}};
}

Shape OutputOf(const ConvCase& c) { return Convolved(c.x, c.w, AttributesOf(c)); }

TEST(Convolution, ForwardAndGradients) {
  std::mt19937_64 random(TestSeed());
  for (const ConvCase& c : kConvolutions) {
    const Shape y = OutputOf(c);
    const Attributes attributes = AttributesOf(c);
    ExpectSameAsReference(Call("Conv", "", {Float(c.x), Float(c.w)}, y, attributes), random, kClose);
    ExpectSameAsReference(Call("Conv", "", {Float(c.x), Float(c.w), Float({c.w[0]})}, y, attributes), random, kClose);
    ExpectSameAsReference(Call("ConvGradInput", "gradloom", {Float(y), Float(c.w)}, c.x, attributes), random, kClose);
    ExpectSameAsReference(Call("ConvGradWeight", "gradloom", {Float(c.x), Float(y)}, c.w, attributes), random,
                          {.absolute = 1e-5, .relative = 1e-5, .scale = 1, .low = -1, .high = 1});
  }
}

TEST(Convolution, Transposed) {
  std::mt19937_64 random(TestSeed());
  for (int64_t stride : {1, 2}) {
    for (int64_t pad : {0, 1}) {
      const int64_t out = (5 - 1) * stride + 3 - 2 * pad;
      const Attributes attributes = {{"strides", std::vector<int64_t>{stride, stride}}, {"pads", std::vector<int64_t>(4, pad)}};
      ExpectSameAsReference(Call("ConvTranspose", "", {Float({2, 6, 5, 5}), Float({6, 4, 3, 3}), Float({4})}, {2, 4, out, out}, attributes),
                            random, kClose);
      ExpectSameAsReference(Call("ConvTranspose", "", {Float({2, 6, 5, 5}), Float({6, 4, 3, 3})}, {2, 4, out, out}, attributes), random,
                            kClose);
    }
  }
}

}  // namespace
}  // namespace gradloom
