#include "kernels/cpu/pointwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/isa/loops.h"
#include "tests/kernels/compare.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

KernelCall Call(const std::string& op, std::vector<OperandType> inputs, Shape output, DType dtype = DType::kFloat32,
                Attributes attributes = {}) {
  return {.op = op, .domain = "", .attributes = std::move(attributes), .inputs = std::move(inputs), .outputs = {Plain(dtype, output)}};
}

OperandType Float(Shape shape) { return Plain(DType::kFloat32, std::move(shape)); }

// A shape that broadcasts to `shape`: some extents are 1, and some leading axes are left out.
Shape RandomPart(std::mt19937_64& random, const Shape& shape) {
  Shape part;
  const auto first = static_cast<int>(random() % static_cast<uint64_t>(shape.rank() + 1));
  for (int axis = random() % 2 == 0 ? 0 : first; axis < shape.rank(); ++axis) part.push_back(random() % 3 == 0 ? 1 : shape[axis]);
  return part;
}

TEST(Pointwise, UnaryFunctions) {
  std::mt19937_64 random(TestSeed());
  struct Case {
    const char* op;
    double low, high, relative;
  };
  const Case cases[] = {
      {"Abs", -3, 3, 0},
      {"Ceil", -3, 3, 0},
      {"Floor", -3, 3, 0},
      {"Round", -3, 3, 0},
      {"Neg", -3, 3, 0},
      {"Relu", -3, 3, 0},
      {"Sign", -3, 3, 0},
      {"Sqrt", 0, 9, 1e-7},
      {"Reciprocal", .1, 9, 1e-7},
      {"Exp", -20, 20, 2e-7},
      {"Log", 1e-6, 50, 2e-7},
      {"Erf", -5, 5, 2e-7},
      {"Tanh", -10, 10, 3e-7},
      {"Sigmoid", -20, 20, 4e-7},
      {"Softplus", -20, 20, 5e-7},
      {"Softsign", -5, 5, 2e-7},
      {"Gelu", -6, 6, 1e-6},
      {"Mish", -10, 10, 1e-6},
      {"HardSwish", -5, 5, 3e-7},
      {"HardSigmoid", -5, 5, 3e-7},
      {"Elu", -5, 5, 4e-7},
      {"Celu", -5, 5, 4e-7},
      {"Selu", -5, 5, 4e-7},
      {"LeakyRelu", -5, 5, 0},
      {"ThresholdedRelu", -3, 3, 0},
      {"Swish", -20, 20, 6e-7},
      {"Sin", -9, 9, 2e-7},
      {"Sin", -200000, 200000, 2e-7},
      {"Cos", -9, 9, 2e-7},
      {"Cos", -200000, 200000, 2e-7},
      {"Tan", -1, 1, 1e-7},
      {"Asin", -1, 1, 1e-7},
      {"Acos", -1, 1, 1e-7},
      {"Atan", -9, 9, 1e-7},
      {"Sinh", -5, 5, 1e-7},
      {"Cosh", -5, 5, 1e-7},
      {"Asinh", -9, 9, 1e-7},
      {"Acosh", 1, 9, 1e-7},
      {"Atanh", -.99, .99, 1e-7},
      {"Identity", -3, 3, 0},
  };
  for (const Case& c : cases) {
    for (const Shape& shape : {Shape{}, Shape{7}, RandomShape(random, 3, 1, 40), Shape{3, 30011}, Shape{0, 4}}) {
      ExpectSameAsReference(Call(c.op, {Float(shape)}, shape), random,
                            {.absolute = 1e-7, .relative = c.relative + 1e-9, .low = c.low, .high = c.high});
    }
  }
  for (const char* approximate : {"none", "tanh"}) {
    ExpectSameAsReference(Call("Gelu", {Float({999})}, {999}, DType::kFloat32, {{"approximate", std::string(approximate)}}), random,
                          {.absolute = 5e-7, .relative = 1e-6, .low = -6, .high = 6});
  }
}

TEST(Pointwise, SpecialValues) {
  std::mt19937_64 random(TestSeed());
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> special = {0.0f,    -0.0f, 1.0f,   -1.0f,  inf,       -inf,   nan,     1e-40f,  -1e-40f,
                                      1e-38f,  3e38f, -3e38f, 88.5f,  88.8f,     -87.5f, -103.0f, -104.5f, 100.0f,
                                      -100.0f, 0.5f,  -0.5f,  0.625f, 0.921875f, 10.0f,  20.0f};
  const auto n = static_cast<int64_t>(special.size());
  const auto fill = [&](int, Tensor& tensor, std::mt19937_64&) {
    std::memcpy(tensor.data(), special.data(), special.size() * sizeof(float));
    return true;
  };
  for (const char* op : {"Abs", "Ceil", "Floor",   "Round",    "Neg", "Relu",      "Sign", "Sqrt",        "Reciprocal", "Exp", "Log",
                         "Erf", "Tanh", "Sigmoid", "Softplus", "Elu", "LeakyRelu", "Selu", "HardSigmoid", "Softsign",   "Sin", "Cos"}) {
    ExpectSameAsReference(Call(op, {Float({n})}, {n}), random, {.absolute = 1e-7, .relative = 1e-6, .fill = fill});
  }
  ExpectSameAsReference(Call("IsNaN", {Float({n})}, {n}, DType::kBool), random, {.fill = fill});
  // Every special value with every other.
  const auto rows = [&](int input, Tensor& tensor, std::mt19937_64&) {
    for (int64_t i = 0; i < n * n; ++i)
      tensor.as<float>()[static_cast<size_t>(i)] = special[static_cast<size_t>(input == 0 ? i / n : i % n)];
    return true;
  };
  for (const char* op : {"Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu"}) {
    ExpectSameAsReference(Call(op, {Float({n * n}), Float({n * n})}, {n * n}), random, {.absolute = 0, .relative = 1e-7, .fill = rows});
  }
  for (const char* op : {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}) {
    ExpectSameAsReference(Call(op, {Float({n * n}), Float({n * n})}, {n * n}, DType::kBool), random, {.fill = rows});
  }
}

TEST(Pointwise, BinaryFunctionsBroadcast) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 40; ++round) {
    const Shape shape = RandomShape(random, 1 + static_cast<int>(random() % 4), 1, round % 5 == 0 ? 14 : 7);
    const Shape a = round % 2 == 0 ? shape : RandomPart(random, shape), b = RandomPart(random, shape);
    const Shape out = *Broadcast(a, b);
    for (const char* op : {"Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu"}) {
      ExpectSameAsReference(Call(op, {Float(a), Float(b)}, out), random, {.absolute = 0, .relative = 1e-7});
    }
    ExpectSameAsReference(Call("Pow", {Float(a), Float(b)}, out), random, {.absolute = 0, .relative = 1e-6, .low = 0.1, .high = 3});
    ExpectSameAsReference(Call("Mod", {Float(a), Float(b)}, out, DType::kFloat32, {{"fmod", int64_t{1}}}), random, {.relative = 1e-6});
    for (const char* op : {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}) {
      ExpectSameAsReference(Call(op, {Float(a), Float(b)}, out, DType::kBool), random);
    }
    for (const char* op : {"And", "Or", "Xor"}) {
      ExpectSameAsReference(Call(op, {Plain(DType::kBool, a), Plain(DType::kBool, b)}, out, DType::kBool), random);
    }
    const Shape condition = RandomPart(random, out);
    ExpectSameAsReference(Call("Where", {Plain(DType::kBool, condition), Float(a), Float(b)}, out), random);
    ExpectSameAsReference(Call("Sum", {Float(a), Float(b), Float(out)}, out), random, {.absolute = 1e-6, .relative = 1e-6});
    ExpectSameAsReference(Call("SwiGLU", {Float(out), Float(out)}, out), random, {.relative = 1e-6});
  }
}

TEST(Pointwise, LongOperandsBroadcast) {
  std::mt19937_64 random(TestSeed());
  const Shape shapes[][2] = {{{3, 40000}, {40000}},  {{2, 32, 29, 31}, {1, 32, 1, 1}}, {{100, 700}, {700}},
                             {{70000, 3}, {3}},      {{200, 513}, {200, 1}},           {{200000}, {}},
                             {{5, 1, 40000}, {7, 1}}};
  for (const auto& [a, b] : shapes) {
    const Shape out = *Broadcast(a, b);
    ExpectSameAsReference(Call("Add", {Float(a), Float(b)}, out), random, {.absolute = 0, .relative = 1e-7});
    ExpectSameAsReference(Call("Greater", {Float(b), Float(a)}, out, DType::kBool), random);
    ExpectSameAsReference(Call("Where", {Plain(DType::kBool, b), Float(a), Float(b)}, out), random);
  }
}

TEST(Pointwise, ClipAndCast) {
  std::mt19937_64 random(TestSeed());
  for (int which = 0; which < 4; ++which) {
    const OperandType low = which & 1 ? Float({}) : OperandType{}, high = which & 2 ? Float({}) : OperandType{};
    ExpectSameAsReference(Call("Clip", {Float({41, 7}), low, high}, {41, 7}), random);
  }
  ExpectSameAsReference(Call("Cast", {Plain(DType::kBool, {3000})}, {3000}), random);
  ExpectSameAsReference(Call("Cast", {Float({3000})}, {3000}, DType::kBool), random);
  ExpectSameAsReference(Call("Not", {Plain(DType::kBool, {3000})}, {3000}, DType::kBool), random);
}

TEST(Pointwise, BlockedOperandsKeepTheirPadding) {
  std::mt19937_64 random(TestSeed());
  const Layout blocked = Layout::FromString("0123:1x8");
  const auto in_blocks = [&](KernelCall call) {
    for (auto* operands : {&call.inputs, &call.outputs}) {
      for (OperandType& operand : *operands) {
        if (operand.shape.rank() == 4) operand.layout = blocked;
      }
    }
    return call;
  };
  const Shape shape{2, 13, 5, 7};
  ExpectSameAsReference(in_blocks(Call("Relu", {Float(shape)}, shape)), random);
  ExpectSameAsReference(in_blocks(Call("Add", {Float(shape), Float(shape)}, shape)), random);
  std::string why;
  EXPECT_EQ(ChooseKernel(DeviceKind::kCpu, in_blocks(Call("Sigmoid", {Float(shape)}, shape)), &why), nullptr);
  EXPECT_NE(why.find("padding"), std::string::npos) << why;
  // Without padding any function is allowed.
  const Shape full{2, 16, 5, 7};
  ExpectSameAsReference(in_blocks(Call("Sigmoid", {Float(full)}, full)), random);
  ExpectSameAsReference(in_blocks(Call("Mul", {Float(full), Float({})}, full)), random);
}

// All machines with fused multiply-add compute the same bits.
TEST(Pointwise, InstructionSetsAgree) {
  const Loops* avx2 = LoopsByName("avx2");
  const Loops* avx512 = LoopsByName("avx512");
  if (avx2 == nullptr || avx512 == nullptr) GTEST_SKIP() << "this machine has not both";
  std::mt19937_64 random(TestSeed());
  std::uniform_real_distribution<float> values(-20, 20);
  std::vector<float> a(1003), b(1003), c(1003), x(1003), y(1003);
  for (auto* v : {&a, &b, &c}) {
    for (float& value : *v) value = values(random);
  }
  for (int op = 0; op < kNumPointwiseOps; ++op) {
    avx2->pointwise[op]({a.data(), b.data(), c.data(), x.data(), 1003});
    avx512->pointwise[op]({a.data(), b.data(), c.data(), y.data(), 1003});
    EXPECT_EQ(std::memcmp(x.data(), y.data(), x.size() * sizeof(float)), 0) << PointwiseOpName(static_cast<PointwiseOp>(op));
  }
}

// The plain C++ loops compute the same up to rounding.
TEST(Pointwise, BaselineIsClose) {
  const Loops *baseline = LoopsByName("baseline"), *best = &BestLoops();
  std::mt19937_64 random(TestSeed());
  std::uniform_real_distribution<float> values(0.1f, 0.9f);
  std::vector<float> a(103), b(103), c(103), x(103), y(103);
  for (auto* v : {&a, &b, &c}) {
    for (float& value : *v) value = values(random);
  }
  for (int op = 0; op < kNumPointwiseOps; ++op) {
    baseline->pointwise[op]({a.data(), b.data(), c.data(), x.data(), 103});
    best->pointwise[op]({a.data(), b.data(), c.data(), y.data(), 103});
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i]) && std::isnan(y[i])) continue;
      ASSERT_NEAR(x[i], y[i], 2e-6f * (1 + std::fabs(x[i]))) << PointwiseOpName(static_cast<PointwiseOp>(op));
    }
  }
}

}  // namespace
}  // namespace gradloom
