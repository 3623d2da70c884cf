// Planned layouts change results only by rounding, and are invisible to callers.
#include "compiler/passes/schedule/assign_layouts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/compile.h"
#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/isa/loops.h"
#include "runtime/session/session.h"
#include "tests/passes/small_training.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

// The tolerance is a multiple (kMoved) of the largest effect of perturbing the inputs by as much as the roundings of a layer (kRounding),
// plus a share of the largest element.
// With max pooling the share is larger (kTies): which of two nearly equal elements is a window's maximum depends on rounding, both choices
// are correct, and each sends the gradient to a different element. A wrong layout misplaces every element.
constexpr double kTolerance = 1e-3, kTies = 2e-2, kMoved = 2;
constexpr float kRounding = 0x1p-18F;
constexpr size_t kPerturbed = 3;

// Convolutional networks as ONNX text: chains of convolutions (some grouped, some with channels that no block size divides),
// normalizations, activations, pooling, residual additions, concatenations and per-channel gates.
class RandomNet {
 public:
  explicit RandomNet(uint64_t seed) : random_(seed) {}

  std::string Text() {
    Conv("x", 3, Pick({8, 16, 12}), 3, 1, 1);
    for (int i = 0; i < 5; ++i) Block();
    const int64_t features = channels_;
    const std::string flat = Node("Flatten", {Node("GlobalAveragePool", {h_})});
    const std::string w = Weight({5, features}, 0.3), b = Weight({5}, 0.1);
    std::string text = "<ir_version: 10, opset_import: [\"\" : 17]>\ng (float[N, 3, 12, 10] x) => (float[N, 5] y) <" + initializers_ +
                       ">\n{\n" + nodes_ + "  y = Gemm <transB = 1> (" + flat + ", " + w + ", " + b + ")\n}";
    return text;
  }

 private:
  int64_t Pick(std::initializer_list<int64_t> of) { return *(of.begin() + static_cast<int64_t>(random_() % of.size())); }

  std::string Weight(const Shape& shape, double spread) {
    std::normal_distribution<double> normal(0, spread);
    const std::string name = "w" + std::to_string(weights_++);
    std::ostringstream text;
    text << (initializers_.empty() ? "" : ", ") << "float" << shape.ToString() << " " << name << " = {";
    for (int64_t i = 0; i < shape.elements(); ++i) text << (i ? ", " : "") << normal(random_);
    initializers_ += text.str() + "}";
    return name;
  }
  std::string Ones(int64_t n, const char* value) {
    const std::string name = "w" + std::to_string(weights_++);
    initializers_ += (initializers_.empty() ? "float[" : ", float[") + std::to_string(n) + "] " + name + " = {";
    for (int64_t i = 0; i < n; ++i) initializers_ += std::string(i ? ", " : "") + value;
    initializers_ += "}";
    return name;
  }

  std::string Node(const std::string& op, const std::vector<std::string>& inputs, const std::string& attributes = "") {
    const std::string name = "n" + std::to_string(count_++);
    nodes_ += "  " + name + " = " + op + (attributes.empty() ? "" : " <" + attributes + ">") + " (";
    for (size_t i = 0; i < inputs.size(); ++i) nodes_ += (i ? ", " : "") + inputs[i];
    nodes_ += ")\n";
    return name;
  }

  void Conv(const std::string& from, int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t group) {
    const std::string k = std::to_string(kernel), p = std::to_string(kernel / 2), s = std::to_string(stride);
    const double spread = 1.0 / std::sqrt(static_cast<double>(in / group * kernel * kernel));
    std::vector<std::string> inputs{from, Weight({out, in / group, kernel, kernel}, spread)};
    if (random_() % 2 == 0) inputs.push_back(Weight({out}, 0.1));
    h_ = Node("Conv", inputs,
              "kernel_shape = [" + k + ", " + k + "], pads = [" + p + ", " + p + ", " + p + ", " + p + "], strides = [" + s + ", " + s +
                  "], group = " + std::to_string(group));
    channels_ = out;
  }

  void Block() {
    const std::string before = h_;
    const int64_t c = channels_;
    switch (random_() % 7) {
      case 0: Conv(h_, c, Pick({8, 16, 24, 10}), Pick({1, 3}), 1, 1); break;
      case 1: Conv(h_, c, c, 3, 1, c); break;
      case 2: h_ = Node("BatchNormalization", {h_, Ones(c, "1"), Ones(c, "0"), Ones(c, "0"), Ones(c, "1")}); break;
      case 3:
        Conv(h_, c, c, 3, 1, 1);
        // Has no kink, where a rounding error would decide.
        h_ = Node("Softplus", {Node("Add", {h_, before})});
        break;
      case 4: {
        const std::string pooled = Node(random_() % 2 ? "MaxPool" : "AveragePool", {h_}, "kernel_shape = [3, 3], pads = [1, 1, 1, 1]");
        h_ = Node("Concat", {h_, pooled}, "axis = 1");
        channels_ = 2 * c;
        break;
      }
      case 5: {
        const std::string gate = Node("Sigmoid", {Node("Conv", {Node("GlobalAveragePool", {h_}), Weight({c, c, 1, 1}, 0.3)})});
        h_ = Node("Mul", {h_, gate});
        break;
      }
      default: h_ = Node("Sigmoid", {h_}); break;
    }
  }

  std::mt19937_64 random_;
  std::string initializers_, nodes_, h_;
  int64_t channels_ = 0;
  int count_ = 0, weights_ = 0;
};

std::shared_ptr<const Plan> PlanOf(const std::string& text, bool layouts, int threads) {
  CompileOptions options;
  options.recipe.losses = {{.type = "cross_entropy", .output = "y", .target = "t"}};
  options.recipe.optimizer.type = "momentum";
  options.recipe.optimizer.lr = 0.05;
  options.recipe.fetch_gradients = options.recipe.fetch_outputs = true;
  options.recipe.threads = threads;
  options.entries = {{EntryKind::kStep, 4}, {EntryKind::kStep, 3}, {EntryKind::kEval, 4}};
  if (!layouts) options.control.disabled = {"assign_layouts"};
  return std::make_shared<const Plan>(Compile(Model::FromText(text), options));
}

double Distance(const TensorView& a, const TensorView& b, int64_t i) { return std::abs(ElementAsDouble(a, i) - ElementAsDouble(b, i)); }

// `moved` has the values of `b` with perturbed inputs. `tolerance` is relative to the largest element.
void ExpectNear(const TensorView& a, const TensorView& b, const std::vector<Tensor>& moved, double tolerance, const std::string& what) {
  ASSERT_EQ(a.shape, b.shape) << what;
  // The gradient of a bias before a normalization is nothing but rounding error.
  double largest = 1e-6, sensitive = 0;
  for (int64_t i = 0; i < b.elements(); ++i) {
    largest = std::max(largest, std::abs(ElementAsDouble(b, i)));
    for (const Tensor& each : moved) sensitive = std::max(sensitive, Distance(each.view(), b, i));
  }
  for (int64_t i = 0; i < b.elements(); ++i)
    ASSERT_LE(Distance(a, b, i), tolerance * largest + kMoved * sensitive + 2e-5) << what << " element " << i;
}

TEST(AssignLayouts, RandomConvolutionNetworks) {
  const uint64_t first = TestSeed();
  int reorders = 0, states = 0;
  for (uint64_t seed = first; seed < first + 24; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::string text = RandomNet(seed).Text();
    const int threads = 1 + static_cast<int>(seed % 2);
    const double tolerance = text.find("MaxPool") == std::string::npos ? kTolerance : kTies;
    const auto plain = PlanOf(text, false, threads);
    Session with(PlanOf(text, true, threads)), without(plain);
    std::vector<std::unique_ptr<Session>> moved;
    for (size_t i = 0; i < kPerturbed; ++i) moved.push_back(std::make_unique<Session>(plain));
    const auto of_moved = [&](const std::function<Tensor(Session&)>& get) {
      std::vector<Tensor> values;
      for (const auto& session : moved) values.push_back(get(*session));
      return values;
    };
    const auto fetched = [&](const std::string& name) {
      return of_moved([&](Session& session) { return Tensor::Copy(session.Fetched(name)); });
    };
    for (const Program& program : with.plan().programs) {
      for (const Instruction& instruction : program.instructions) reorders += instruction.op == "Reorder";
    }
    for (const StateTensor& state : with.plan().state) states += !state.layout.plain();
    std::mt19937_64 random(seed);
    for (int64_t rows : {4, 4, 3}) {
      Tensor x(DType::kFloat32, {rows, 3, 12, 10}), t(DType::kInt64, {rows});
      for (float& value : x.as<float>()) value = std::normal_distribution<float>()(random);
      for (int64_t& label : t.as<int64_t>()) label = static_cast<int64_t>(random() % 5);
      const Feeds feeds = {{"x", x.view()}, {"t", t.view()}};
      const double a = with.Step(feeds).loss, b = without.Step(feeds).loss;
      for (const auto& session : moved) {
        Tensor near = Tensor::Copy(x.view());
        for (float& value : near.as<float>()) value *= random() % 2 == 0 ? 1 + kRounding : 1 - kRounding;
        session->Step({{"x", near.view()}, {"t", t.view()}});
      }
      ASSERT_NEAR(a, b, 1e-4 * std::max(1.0, std::abs(b)));
      ASSERT_EQ(with.HasFetch("y"), without.HasFetch("y"));
      ExpectNear(with.Fetched("y"), without.Fetched("y"), fetched("y"), tolerance, "output");
      for (const StateTensor& state : without.plan().state) {
        if (state.kind != StateKind::kParameter) continue;
        ASSERT_TRUE(with.HasFetch("grad/" + state.name)) << state.name;
        const std::string name = "grad/" + state.name;
        ExpectNear(with.Fetched(name), without.Fetched(name), fetched(name), tolerance, "gradient of " + state.name);
      }
      if (rows != 4) continue;
      const auto loss = [&](Session& session) { return Tensor::Copy(session.Evaluate(feeds).at("loss").view()); };
      ExpectNear(loss(with).view(), loss(without).view(), of_moved(loss), tolerance, "evaluation");
    }
    for (const StateTensor& state : without.plan().state) {
      const auto get = [&](Session& session) { return session.Get(state.name); };
      ExpectNear(get(with).view(), get(without).view(), of_moved(get), tolerance, "state " + state.name);
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(reorders, 0);
  EXPECT_GT(states, 0) << "no weight is kept in a layout of its kernel";
}

// A roll by nothing cuts a part without elements from a value in the layout of its convolution.
TEST(AssignLayouts, PartsWithoutElements) {
  std::string text = "<ir_version: 10, opset_import: [\"\" : 17]>\ng (float[N, 3, 12, 10] x) => (float[N, 5] y) <";
  const auto weight = [&](const std::string& name, const std::string& shape, int count) {
    text += "float" + shape + " " + name + " = {";
    for (int i = 0; i < count; ++i) text += (i ? ", " : "") + std::to_string(0.1 * std::sin(i + 1.0));
    text += "}, ";
  };
  weight("w0", "[8, 3, 3, 3]", 216);
  weight("w1", "[5, 8, 3, 3]", 360);
  text +=
      "int64[1] zero = {0}, int64[1] end = {9223372036854775807}, int64[1] two = {2}>\n{ a = Conv <pads = [1, 1, 1, 1]> (x, w0) "
      "b = Sigmoid (a) first = Slice (b, zero, zero, two) rest = Slice (b, zero, end, two) c = Concat <axis = 2> (rest, first) "
      "d = Conv <pads = [1, 1, 1, 1]> (c, w1) e = GlobalAveragePool (d) y = Flatten (e) }";
  Session with(PlanOf(text, true, 1)), without(PlanOf(text, false, 1));
  for (int step = 0; step < 2; ++step) {
    Tensor x(DType::kFloat32, {4, 3, 12, 10}), t(DType::kInt64, {4});
    for (int64_t i = 0; i < x.elements(); ++i)
      x.as<float>()[static_cast<size_t>(i)] = static_cast<float>(std::sin(0.7 * static_cast<double>(i)));
    for (int64_t i = 0; i < 4; ++i) t.as<int64_t>()[static_cast<size_t>(i)] = i;
    const Feeds feeds = {{"x", x.view()}, {"t", t.view()}};
    EXPECT_NEAR(with.Step(feeds).loss, without.Step(feeds).loss, 1e-5);
  }
}

// In bfloat16 the weight itself has no blocks: its copies have, and they are made from 16 bits, also for a filter of 1 x 1, whose order is
// that of the forward convolution.
TEST(AssignLayouts, WeightsReadAsCopies) {
  CompileOptions options;
  options.recipe.losses = {{.type = "mse", .output = "y", .target = "t"}};
  options.recipe.precision = Precision::kBfloat16;
  options.entries = {{EntryKind::kStep, 2}};
  const auto zeros = [](const std::string& name, const std::string& shape, int64_t count) {
    std::string text = "float" + shape + " " + name + " = {0.5";
    for (int64_t i = 1; i < count; ++i) text += ",0.5";
    return text + "}";
  };
  const std::string text = "<ir_version: 10, opset_import: [\"\" : 17]>\ng (float[N, 32, 8, 8] x) => (float[N, 64, 8, 8] y) <" +
                           zeros("first", "[32, 32, 1, 1]", 32 * 32) + ", " + zeros("second", "[64, 32, 3, 3]", 64 * 32 * 9) +
                           ">\n{\n  h = Conv (x, first)\n  r = Relu (h)\n  y = Conv <pads = [1, 1, 1, 1]> (r, second)\n}";
  const Plan plan = Compile(Model::FromText(text), options);
  for (const StateTensor& state : plan.state) {
    if (state.kind != StateKind::kParameter) continue;
    EXPECT_TRUE(state.layout.blocks.empty()) << state.name;
    if (!HasFastBfloat16()) continue;
    EXPECT_EQ(state.layout.ToString(), state.name == "first" ? "plain" : "0231") << state.name;
  }
  for (const Program& program : plan.programs) {
    for (const Instruction& instruction : program.instructions) {
      if (instruction.op != "Reorder") continue;
      const Buffer& from = program.buffers[static_cast<size_t>(instruction.uses[0].buffer)];
      EXPECT_TRUE(from.shape.rank() != 4 || from.shape[2] > 3 || from.dtype == DType::kBfloat16) << from.name;
    }
  }
}

// Filters for each of 72 channels are stored for 80 with AVX-512; the padding is no weight.
TEST(AssignLayouts, FiltersForEachChannelArePadded) {
  std::mt19937 random(7);
  const Model model =
      ModelOf("g (float[N, 72, 9, 8] x) => (float[N, 5] z)\n<" + Weights(random, "a", {72, 1, 3, 3}, 0.3F) + ", " +
              Weights(random, "b", {72, 1, 5, 5}, 0.2F) + ", " + Weights(random, "c", {72, 5}, 0.2F) +
              ">\n{\n  h = Conv <group = 72, pads = [1, 1, 1, 1]> (x, a)\n  r = Tanh (h)\n"
              "  i = Conv <group = 72, pads = [2, 2, 2, 2], strides = [2, 2]> (r, b)\n  s = Tanh (i)\n  p = GlobalAveragePool (s)\n"
              "  f = Flatten (p)\n  z = MatMul (f, c)\n}\n");
  std::vector<Batch> batches;
  for (int i = 0; i < 3; ++i) batches.push_back({{"x", Random(random, {4, 72, 9, 8})}, {"target", Classes(random, 4, 5)}});
  ExpectSameWithout("assign_layouts", model, batches, 1e-4, [&](const CompileOptions& options) {
    if (BestLoops().name != std::string_view("avx512")) return;
    for (const StateTensor& state : Compile(model, options).state) {
      EXPECT_EQ(state.layout.elements(state.shape), state.name == "a" ? 80 * 9 : state.layout.elements(state.shape)) << state.name;
    }
  });
}

// An evaluation fetches scores in float32 and in plain order, which a GPU computes in 16 bits with padded rows: half as many bytes are
// reordered, and they do not exist in float32 in two orders.
TEST(AssignLayouts, ScoresAreReorderedInSixteenBits) {
  constexpr int64_t kRows = 17000, kWidth = 64, kClasses = 1001;
  std::mt19937 random(1);
  const Model model =
      ModelOf("g (float[N, 64] x) => (float[N, 1001] y)\n<" + Weights(random, "w", {kWidth, kClasses}) + ">\n{\n  y = MatMul (x, w)\n}\n");
  CompileOptions options;
  options.recipe.losses = {{.type = "cross_entropy", .output = "y", .target = "t"}};
  options.recipe.device = DeviceKind::kCuda;
  options.recipe.isa = "sm_90";
  options.recipe.precision = Precision::kBfloat16;
  options.entries = {{EntryKind::kEval, kRows}};
  const Plan plan = Compile(model, options);
  int reorders = 0;
  for (const Program& program : plan.programs) {
    for (const Instruction& instruction : program.instructions) {
      if (instruction.op != "Reorder") continue;
      const Buffer& from = program.buffers[static_cast<size_t>(instruction.uses[0].buffer)];
      if (from.shape != Shape{kRows, kClasses}) continue;
      ++reorders;
      EXPECT_EQ(from.dtype, DType::kBfloat16) << from.name;
    }
  }
  EXPECT_EQ(reorders, 1);
}

}  // namespace
}  // namespace gradloom
