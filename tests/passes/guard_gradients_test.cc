// Operators that PyTorch differentiates by hand, and exporters write as several operators: their gradients are finite where PyTorch's are.
#include "compiler/passes/gradient/guard_gradients.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr float kInf = std::numeric_limits<float>::infinity();

// What a function of one or two rows of numbers makes of them.
struct Results {
  std::vector<double> values, slopes, slopes_of_second;
};

std::string Numbers(size_t count) {
  std::string text = "0";
  for (size_t i = 1; i < count; ++i) text += ", 0";
  return "{" + text + "}";
}

// `body` computes `out` from a and b, which have the shape [N, n]. The slopes are those of the sum of `out`.
Results TrainedOn(const std::string& body, const std::vector<float>& a, const std::vector<float>& b) {
  const std::string row = std::to_string(a.size()), zeros = Numbers(a.size());
  const Model model =
      ModelOf("g (float[N, " + row + "] x, float[N, " + row + "] y) => (float[N, " + row + "] out)\n<float[" + row + "] v = " + zeros +
              ", float[" + row + "] w = " + zeros + ">\n{ a = Sub (x, v)\n b = Sub (y, w)\n" + body + "}\n");
  CompileOptions options = OptionsFor({{.type = "output", .output = "out", .reduction = "sum"}}, 1, {1});
  options.recipe.optimizer.type = "sgd";
  const Shape shape{1, static_cast<int64_t>(a.size())};
  const auto made =
      Train(model, options, {{{"x", Tensor::From(std::vector<float>(a), shape)}, {"y", Tensor::From(std::vector<float>(b), shape)}}});
  Results results;
  for (int64_t i = 0; i < std::ssize(a); ++i) {
    results.values.push_back(ElementAsDouble(made.at("out@0").view(), i));
    results.slopes.push_back(-ElementAsDouble(made.at("grad/v@0").view(), i));
    results.slopes_of_second.push_back(made.contains("grad/w@0") ? -ElementAsDouble(made.at("grad/w@0").view(), i) : 0);
  }
  return results;
}

void ExpectClose(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(want[i])) {
      EXPECT_EQ(got[i], want[i]) << i;
    } else {
      EXPECT_NEAR(got[i], want[i], 1e-5 * std::abs(want[i]) + 1e-6) << i;
    }
  }
}

const std::string kConstants =
    "zero = Constant <value = float {0}> ()\n one = Constant <value = float {1}> ()\n pi = Constant <value = float {3.14159265}> ()\n";
// Uses b, so that it is trained.
const std::string kSecond = "zero_b = Mul (b, zero)\n out = Add (value, zero_b)\n";

TEST(GuardGradients, Sinc) {
  const double at_half = 1 / (0.5 * kPi), slope_at_half = -1 / (0.25 * kPi);
  // As torch.export decomposes it, and as ONNX Script's library does.
  for (const char* body : {"p = Mul (a, pi)\n c = Equal (p, zero)\n s = Sin (p)\n q = Div (s, p)\n value = Where (c, one, q)\n",
                           "p = Mul (a, pi)\n c = Equal (a, zero)\n s = Sin (p)\n q = Div (s, p)\n value = Where (c, one, q)\n"}) {
    SCOPED_TRACE(body);
    const Results made = TrainedOn(kConstants + body + kSecond, {0, 0.5, -0.5}, {1, 2, 3});
    ExpectClose(made.values, {1, at_half, at_half});
    ExpectClose(made.slopes, {0, slope_at_half, -slope_at_half});
  }
}

TEST(GuardGradients, BranchesThatAreNotSelected) {
  const std::string positive = kConstants + "c = Greater (a, zero)\n";
  const Results log = TrainedOn(positive + "l = Log (a)\n value = Where (c, l, b)\n" + kSecond, {0, 2, -1}, {1, 2, 3});
  ExpectClose(log.values, {1, std::log(2.0), 3});
  ExpectClose(log.slopes, {0, 0.5, 0});
  ExpectClose(log.slopes_of_second, {1, 0, 1});
  const Results inverse =
      TrainedOn(kConstants + "c = Equal (a, zero)\n r = Reciprocal (a)\n value = Where (c, b, r)\n" + kSecond, {0, 2, -4}, {1, 2, 3});
  ExpectClose(inverse.values, {1, 0.5, -0.25});
  ExpectClose(inverse.slopes, {0, -0.25, -0.0625});
}

// A guarded node is placed by its name, like the others.
TEST(GuardGradients, NodesKeepTheirNames) {
  const Model model = ModelOf(
      "g (float[N, 2] x) => (float[N, 2] out)\n<float[2] v = {1, 2}, float zero = {0}>\n{ a = Mul (x, v)\n c = Greater (a, zero)\n"
      "[ratio] q = Div (x, a)\n [select] out = Where (c, q, a)\n}\n");
  CompileOptions options = OptionsFor({{.type = "output", .output = "out"}}, 2, {2});
  options.recipe.place = {{"ratio", 1}};
  EXPECT_EQ(Compile(model, options).places.size(), 2U);
}

// What replaces a node of the model computes in 16 bits, as it did. The loss does not.
TEST(GuardGradients, KeepsThePrecision) {
  const Model model = ModelOf(
      "g (float[N, 2] x, bool[N, 2] c) => (float[N, 2] out)\n<float[2, 2] v = {1, 2, 3, 4}, float[2, 2] w = {4, 3, 2, 1}, float low = "
      "{-4}>\n"
      "{ a = MatMul (x, v)\n b = MatMul (x, w)\n q = Div (a, b)\n [select] s = Where (c, q, low)\n out = MatMul (s, v)\n}\n");
  CompileOptions options = OptionsFor({{.type = "mse", .output = "out", .target = "t"}}, 1, {2});
  options.recipe.precision = Precision::kBfloat16;
  options.recipe.optimizer.type = "sgd";
  options.control.disabled = {"fuse_pointwise"};
  const Plan plan = Compile(model, options);
  const Program& program = plan.programs.front();
  int selections = 0;
  for (const Instruction& i : program.instructions) {
    if (i.op != "Where" || i.origin != "select") continue;
    ++selections;
    for (const Use& use : i.uses) EXPECT_NE(program.buffers[static_cast<size_t>(use.buffer)].dtype, DType::kFloat32);
  }
  EXPECT_GT(selections, 0);
}

// A division that is also read elsewhere keeps its gradient there.
TEST(GuardGradients, OtherReadersOfABranch) {
  const Results made =
      TrainedOn(kConstants + "c = Greater (b, zero)\n q = Div (b, a)\n s = Where (c, q, one)\n out = Add (s, q)\n", {2, 4}, {1, -2});
  ExpectClose(made.values, {1, 0.5});
  ExpectClose(made.slopes, {-0.5, 0.125});
  ExpectClose(made.slopes_of_second, {1, 0.25});
}

// torch.atan2(a, b) on the axes, at their origin and between them.
TEST(GuardGradients, Arctangent) {
  const std::string body = kConstants +
                           "slope = Div (a, b)\n angle = Atan (slope)\n above = Greater (a, zero)\n more = Add (angle, pi)\n"
                           "less = Sub (angle, pi)\n turned = Where (above, more, less)\n left = Less (b, zero)\n";
  const std::vector<float> y = {1, -1, 1, 2, -2, 3, -3, 0, 1, 1e-30F, 0}, x = {0, 0, -0.0F, 1, 1, -1, -1, 2, 1e-30F, 1, 0};
  std::vector<double> values, slopes, slopes_of_second;
  for (size_t i = 0; i < y.size(); ++i) {
    const double a = y[i], b = x[i], square = a * a + b * b;
    values.push_back(std::atan2(a, b));
    slopes.push_back(square == 0 ? 0 : b / square);
    slopes_of_second.push_back(square == 0 ? 0 : -a / square);
  }
  for (const char* last :
       {"out = Where (left, turned, angle)\n", "raw = Where (left, turned, angle)\n nan = IsNaN (raw)\n out = Where (nan, zero, raw)\n"}) {
    SCOPED_TRACE(last);
    const Results made = TrainedOn(body + last, y, x);
    ExpectClose(made.values, values);
    ExpectClose(made.slopes, slopes);
    ExpectClose(made.slopes_of_second, slopes_of_second);
  }
}

// binary_cross_entropy of probabilities a and targets b as torch.export decomposes it.
TEST(GuardGradients, BinaryCrossEntropy) {
  const Results made = TrainedOn(kConstants +
                                     "low = Constant <value = float {-100}> ()\n n = Neg (a)\n rest = Add (n, one)\n r = Log (rest)\n"
                                     "most = Max (r, low)\n p = Log (a)\n least = Max (p, low)\n m = Sub (b, one)\n no = Mul (m, most)\n"
                                     "yes = Mul (b, least)\n out = Sub (no, yes)\n",
                                 {0, 1, 0, 1, 0.25F}, {0, 1, 1, 0, 1});
  ExpectClose(made.values, {0, 0, 100, 100, -std::log(0.25)});
  ExpectClose(made.slopes, {1, -1, 0, 0, -4});
}

TEST(GuardGradients, RaisedLogarithms) {
  const std::string start = kConstants + "low = Constant <value = float {-100}> ()\n l = Log (a)\n";
  for (const char* raised : {"value = Max (l, low)\n", "value = Max (low, l)\n", "value = Clip (l, low)\n"}) {
    SCOPED_TRACE(raised);
    const Results made = TrainedOn(start + raised + kSecond, {0, 1, 0.25F}, {1, 2, 3});
    ExpectClose(made.values, {-100, 0, std::log(0.25)});
    ExpectClose(made.slopes, {0, 1, 4});
  }
}

// logcumsumexp as exporters write it: padding before the first number.
TEST(GuardGradients, LogCumSumExp) {
  const Results made =
      TrainedOn(kConstants +
                    "largest = ReduceMax <axes = [1], keepdims = 1> (a)\n d = Sub (a, largest)\n e = Exp (d)\n"
                    "axis = Constant <value = int64 {1}> ()\n s = CumSum (e, axis)\n l = Log (s)\n all = Add (l, largest)\n"
                    "c = Greater (b, zero)\n value = Where (c, all, zero)\n" +
                    kSecond,
                {-1e9F, -kInf, 1, 3}, {0, 0, 1, 1});
  ExpectClose(made.values, {0, 0, 1, 3 + std::log1p(std::exp(-2.0))});
  const double share = 1 / (1 + std::exp(2.0));
  ExpectClose(made.slopes, {0, 0, 1 + share, 1 - share});
}

}  // namespace
}  // namespace gradloom
