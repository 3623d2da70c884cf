// Invalid decisions by the data of a step, in branches, loops and extents: the error is the same as on the CPU, and later steps are not
// affected.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/exec/executor.h"
#include "tests/cuda/emulated_runtime.h"

namespace gradloom {
namespace {

class Decisions : public testing::Test {
 protected:
  void SetUp() override { emulated::Reset({.devices = 1, .seed = 11}); }
  // Aborts if anything is left over.
  void TearDown() override { emulated::Reset({}); }
};

std::unique_ptr<Executor> Trainer(const std::string& text, DeviceKind device) {
  CompileOptions options;
  options.recipe.mode = GraphMode::kGraph;
  options.recipe.device = device;
  if (device == DeviceKind::kCuda) options.recipe.isa = "sm_90";
  options.recipe.losses = {LossTerm{.type = "output"}};
  options.entries.push_back({EntryKind::kStep, 0});
  return Executor::Make(std::make_shared<const Plan>(Compile(Model::FromText(text), options)));
}

// The mean of the output in a step that changes nothing.
double Loss(Executor& executor, const std::vector<Tensor>& feeds) {
  std::vector<TensorView> views;
  for (const Tensor& feed : feeds) views.push_back(feed.view());
  executor.Run(0, views, {});
  return ElementAsDouble(executor.Fetched(0, 0), 0);
}

std::string Refusal(Executor& executor, const std::vector<Tensor>& feeds) {
  try {
    Loss(executor, feeds);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kData);
    return error.Describe();
  }
  return "";
}

// Both devices refuse `bad` with the same message, and `good` gives the same result before and after that.
void ExpectRefused(const std::string& text, const std::vector<Tensor>& good, const std::vector<Tensor>& bad, const std::string& words) {
  const std::unique_ptr<Executor> cpu = Trainer(text, DeviceKind::kCpu), cuda = Trainer(text, DeviceKind::kCuda);
  const double right = Loss(*cpu, good);
  const std::string said = Refusal(*cpu, bad);
  EXPECT_NE(said.find(words), std::string::npos) << said;
  // The first rounds launch kernels one by one, later ones replay captured graphs.
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(Loss(*cuda, good), right) << "round " << round;
    EXPECT_EQ(Refusal(*cuda, bad), said) << "round " << round;
  }
  EXPECT_EQ(Loss(*cuda, good), right);
}

Tensor Bools(const std::vector<bool>& values) { return Tensor::From(values, Shape{static_cast<int64_t>(values.size())}); }
Tensor Floats(const std::vector<float>& values) { return Tensor::From(values, Shape{static_cast<int64_t>(values.size())}); }

constexpr char kSums[] = R"(<ir_version: 10, opset_import: ["" : 20]>
sums (float[4] x, bool[4] m, bool[4] k) => (float[a] y) <float[1] w = {2}>
{
  p = Compress <axis = 0> (x, m)
  q = Compress <axis = 0> (x, k)
  s = Add (p, q)
  y = Mul (s, w)
}
)";

TEST_F(Decisions, MismatchedExtents) {
  const Tensor x = Floats({1, 2, 3, 4}), two = Bools({true, false, true, false}), also = Bools({false, true, true, false});
  ExpectRefused(kSums, {x, two, also}, {x, two, Bools({true, true, true, false})},
                "operands that have to have the same extent have 2 and 3 elements with this batch");
}

constexpr char kUntil[] = R"(<ir_version: 10, opset_import: ["" : 20]>
until (float[2] x, float limit) => (float[2] y) <float[2] w = {1, 0.5}, bool yes = {1}>
{
  y = Loop (, yes, x) <
    body = body_graph (int64 i, bool going, float[2] s) => (bool again, float[2] next) {
      next = Mul (s, w)
      top = ReduceMax <keepdims = 0> (next)
      again = Less (limit, top)
    }
  >
}
)";

TEST_F(Decisions, LoopBeyondItsBound) {
  const Tensor limit = Tensor::Scalar<float>(100);
  ExpectRefused(kUntil, {Floats({1, 400}), limit}, {Floats({200, 1}), limit}, "limit of 256 iterations in its plan");
}

constexpr char kGuarded[] = R"(<ir_version: 10, opset_import: ["" : 20]>
guarded (float[4] x, int64 i) => (float y) <float[4] w = {2, 2, 2, 2}, int64 seven = {7}>
{
  inside = Less (i, seven)
  y = If (inside) <
    then_branch = then_graph () => (float t) { v = Mul (x, w) t = Gather (v, i) },
    else_branch = else_graph () => (float e) { e = ReduceSum <keepdims = 0> (x) }
  >
}
)";

// The error names the node of the body. What follows from the faulty data does not matter.
TEST_F(Decisions, IndexOutOfRangeInABody) {
  const std::unique_ptr<Executor> cuda = Trainer(kGuarded, DeviceKind::kCuda);
  const auto feeds = [](int64_t i) { return std::vector<Tensor>{Floats({1, 2, 3, 4}), Tensor::Scalar<int64_t>(i)}; };
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(Loss(*cuda, feeds(2)), 6);
    const std::string said = Refusal(*cuda, feeds(5));
    EXPECT_NE(said.find("index 5 is out of range, there are 4"), std::string::npos) << said;
    EXPECT_NE(said.find("Gather"), std::string::npos) << said;
    EXPECT_EQ(Loss(*cuda, feeds(9)), 10);
  }
}

}  // namespace
}  // namespace gradloom
