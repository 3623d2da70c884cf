// The instruction that made the first NaN or infinity is found, wherever it ran, and nothing else changes.
#include "runtime/exec/numerics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kSamples = 6;

struct Where {
  int devices = 1, streams = 1;
};

constexpr Where kEverywhere[] = {{1, 1}, {1, 2}, {2, 1}, {3, 2}};

class TrainedNet {
 public:
  TrainedNet(const std::string& graph, const Where& where, const std::function<void(CompileOptions&)>& change = {},
             bool check_numerics = true) {
    CompileOptions options = OptionsFor({{.type = "mse", .output = "z", .target = "t"}}, where.devices, {kSamples});
    options.recipe.streams = where.streams;
    options.control.disabled = {"fuse_pointwise"};
    if (change) change(options);
    session_ = std::make_unique<Session>(std::make_shared<const Plan>(Compile(ModelOf(graph), options)),
                                         SessionOptions{.executor = {.check_numerics = check_numerics}});
  }

  Session& session() { return *session_; }
  double Step(const Batch& batch) { return session_->Step(Views(batch)).loss; }
  // Of the last step's loss, or of the first state that is not finite.
  std::string Origin() { return session_->NonFiniteOrigin(session_->NonFiniteState()); }

 private:
  std::unique_ptr<Session> session_;
};

class Numerics : public testing::Test {
 protected:
  Batch Data() { return {{"x", Random(random_, {kSamples, 4})}, {"t", Random(random_, {kSamples, 3})}}; }

  std::mt19937 random_{5};
};

void Contains(const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text; }

void StartsWith(const std::string& text, const std::string& part) { EXPECT_EQ(text.substr(0, part.size()), part) << text; }

// Nodes have no names in ONNX text, so operators and values tell them apart.
std::string LogNet(std::mt19937& random) {
  return "g (float[N, 4] x) => (float[N, 3] z)\n<" + Weights(random, "u", {4, 3}) + ", " + Weights(random, "b", {3}) +
         ">\n{\n a = Abs (x)\n l = Log (a)\n y = MatMul (l, u)\n z = Add (y, b)\n}\n";
}

TEST_F(Numerics, FindsTheForwardNode) {
  const std::string graph = LogNet(random_);
  for (const Where& where : kEverywhere) {
    TrainedNet net(graph, where);
    Batch batch = Data();
    EXPECT_TRUE(std::isfinite(net.Step(batch)));
    EXPECT_EQ(net.Origin(), "");
    // Of several devices, the last has it.
    batch.at("x").as<float>()[5 * 4 + 2] = 0;
    EXPECT_FALSE(std::isfinite(net.Step(batch)));
    const std::string origin = net.Origin();
    StartsWith(origin, "Log");
    Contains(origin, " in the forward pass of step 2" + (where.devices > 1 ? ", on device " + std::to_string(where.devices - 1) : "") +
                         ": 'l' float32[" + std::to_string(kSamples / where.devices) + ",4] has 1 infinity of ");
    Contains(origin, "the first at [" + std::to_string(kSamples / where.devices - 1) + ", 2]; of its inputs, 'a' is from 0 to ");
  }
}

// The second device multiplies what the first one sends.
TEST_F(Numerics, FindsTheNodeOfAnotherDevice) {
  TrainedNet net(LogNet(random_), {2, 1}, [](CompileOptions& options) {
    options.recipe.place = {{.pattern = "Log/l", .stage = 0}, {.pattern = "u", .stage = 1}};
  });
  Batch batch = Data();
  EXPECT_TRUE(std::isfinite(net.Step(batch)));
  batch.at("x").as<float>()[5 * 4 + 2] = 0;
  EXPECT_FALSE(std::isfinite(net.Step(batch)));
  StartsWith(net.Origin(), "Log");
  Contains(net.Origin(), " in the forward pass of step 2, on device 0");
}

TEST_F(Numerics, FindsTheBackwardNode) {
  const std::string graph = "g (float[N, 4] x) => (float[N, 3] z)\n<" + Weights(random_, "u", {4, 3}) +
                            ", float[3] p = {1, 0, 4}>\n{\n s = Sqrt (p)\n y = MatMul (x, u)\n z = Add (y, s)\n}\n";
  for (const Where& where : kEverywhere) {
    TrainedNet net(graph, where);
    EXPECT_TRUE(std::isfinite(net.Step(Data())));
    EXPECT_EQ(net.session().NonFiniteState(), "p");
    Contains(net.Origin(), " in the backward pass of step 1");
    EXPECT_EQ(net.session().OwnNonFiniteOrigin(), net.Origin());
    // The next step reads the parameter, and finds the same origin.
    const std::string before = net.Origin();
    EXPECT_FALSE(std::isfinite(net.Step(Data())));
    EXPECT_EQ(net.Origin(), before);
  }
}

TEST_F(Numerics, FindsTheUpdate) {
  const std::string graph = LogNet(random_);
  for (const Where& where : kEverywhere) {
    TrainedNet net(graph, where, [](CompileOptions& options) {
      options.recipe.optimizer.type = "sgd";
      options.recipe.schedule.lr = options.recipe.optimizer.lr = 3e38;
    });
    Batch batch = Data();
    for (float& t : batch.at("t").as<float>()) t = 1e3F;
    EXPECT_TRUE(std::isfinite(net.Step(batch)));
    Contains(net.Origin(), " in the update of step 1");
    EXPECT_FALSE(std::isfinite(net.Step(batch)));
    Contains(net.Origin(), " in the update of step 1");
  }
}

// Gradients that several batches add up for one update.
TEST_F(Numerics, FindsTheBatchOfAnUpdate) {
  const std::string graph = "g (float[N, 4] x) => (float[N, 3] z)\n<" + Weights(random_, "u", {4, 3}) +
                            ">\n{\n y = MatMul (x, u)\n s = Abs (y)\n z = Sqrt (s)\n}\n";
  for (const bool separately : {false, true}) {
    TrainedNet net(graph, {2, 1}, [&](CompileOptions& options) {
      options.recipe.accumulate = 2;
      options.recipe.fetch_gradients = false;
      options.entries = {{EntryKind::kAccumulate, kSamples}};
      options.entries.push_back(separately ? EntryRequest{EntryKind::kUpdate, 0} : EntryRequest{EntryKind::kLastBatch, kSamples});
    });
    Batch bad = Data();
    for (int i = 0; i < 4; ++i) bad.at("x").as<float>()[static_cast<size_t>(i)] = 0;
    net.Step(bad);
    net.Step(Data());
    EXPECT_NE(net.session().NonFiniteState(), "");
    Contains(net.Origin(), " in the backward pass of step 1");
    net.Step(Data());
    EXPECT_FALSE(std::isfinite(net.session().loss()));
    Contains(net.Origin(), " in the backward pass of step 1");
  }
}

TEST_F(Numerics, FindsTheNodeOfALoop) {
  const std::string graph = "g (float[N, 4] x, float begin) => (float[N, 3] z)\n<" + Weights(random_, "u", {4, 3}) +
                            ", int64 five = {5}>\n{\n y = MatMul (x, u)\n"
                            " d = Loop (five, , begin) <body = l (int64 k, bool going, float p) => (bool again, float q) { q = Exp (p) "
                            "again = Identity (going) }>\n"
                            " z = Mul (y, d)\n}\n";
  for (const Where& where : kEverywhere) {
    TrainedNet net(graph, where);
    Batch batch = Data();
    batch.emplace("begin", Tensor::Scalar<float>(2));
    EXPECT_FALSE(std::isfinite(net.Step(batch)));
    const std::string origin = net.Origin();
    StartsWith(origin, "Exp");
    // exp(exp(2)), not what the loop began with.
    Contains(origin, " is 1618.18");
  }
}

TEST_F(Numerics, InfinitiesOfMasksAreOrdinary) {
  const std::string graph = "g (float[N, 4] x, float[N, 4] mask) => (float[N, 3] z)\n<" + Weights(random_, "w", {4, 4}) + ", " +
                            Weights(random_, "u", {4, 3}) +
                            ">\n{\n s = MatMul (x, w)\n m = Add (s, mask)\n p = Softmax (m)\n z = MatMul (p, u)\n}\n";
  for (const Where& where : kEverywhere) {
    TrainedNet net(graph, where);
    Batch batch = Data();
    Tensor mask(DType::kFloat32, Shape{kSamples, 4});
    for (size_t i = 0; i < 24; i += 3) mask.as<float>()[i] = -kInfinity;
    batch.emplace("mask", mask);
    EXPECT_TRUE(std::isfinite(net.Step(batch)));
    EXPECT_EQ(net.Origin(), "");
    // A sample that may see nothing.
    for (size_t i = 0; i < 4; ++i) batch.at("mask").as<float>()[i] = -kInfinity;
    EXPECT_TRUE(std::isnan(net.Step(batch)));
    StartsWith(net.Origin(), "Softmax");
    Contains(net.Origin(), "infinities");
  }
}

TEST_F(Numerics, NamesTheData) {
  const std::string graph = "g (float[N, 4] x) => (float[N, 3] z)\n<" + Weights(random_, "u", {4, 3}) + ">\n{\n z = MatMul (x, u)\n}\n";
  for (const Where& where : kEverywhere) {
    TrainedNet net(graph, where);
    Batch batch = Data();
    batch.at("x").as<float>()[5 * 4 + 1] = std::nanf("");
    EXPECT_TRUE(std::isnan(net.Step(batch)));
    StartsWith(net.Origin(), "input 'x' of step 1 has 1 NaN of ");
    Contains(net.Origin(), ", in sample 5 of the batch");
  }
  // Weights that were not finite from the start.
  TrainedNet net(graph, {});
  Tensor u = net.session().Get("u");
  u.as<float>()[1] = kInfinity;
  net.session().Set("u", u.view());
  net.Step(Data());
  StartsWith(net.Origin(), "state 'u' before step 1 has 1 infinity of 12 elements, the first at [0, 1]");
}

TEST_F(Numerics, ChangesNoBit) {
  const std::string graph = LogNet(random_);
  const std::vector<Batch> batches = {Data(), Data(), Data()};
  for (const Where& where : kEverywhere) {
    std::map<std::string, Tensor> results[2];
    for (const bool check : {false, true}) {
      TrainedNet net(graph, where, {}, check);
      for (size_t step = 0; step < batches.size(); ++step)
        results[check].emplace("loss " + std::to_string(step), Tensor::Scalar<double>(net.Step(batches[step])));
      for (const StateTensor& state : net.session().plan().state) results[check].emplace(state.name, net.session().Get(state.name));
    }
    ExpectSameBits(results[0], results[1]);
  }
}

TEST_F(Numerics, ScansElementsButNotPadding) {
  const Buffer buffer{.name = "v", .dtype = DType::kFloat32, .shape = {3, 5}, .layout = {.order = {}, .blocks = {{1, 8}}}};
  Tensor logical(DType::kFloat32, Shape{3, 5});
  for (size_t i = 0; i < 15; ++i) logical.as<float>()[i] = static_cast<float>(i) - 4;
  logical.as<float>()[14] = std::nanf("");
  logical.as<float>()[7] = -kInfinity;
  std::vector<float> stored(24);
  ToLayout(buffer.layout, buffer.shape, 4, logical.data(), stored.data());
  stored[23] = std::nanf("");  // of the padding
  const ScannedValue found = ScanValue(buffer, stored.data());
  EXPECT_EQ(found.nans, 1);
  EXPECT_EQ(found.first_nan, 14);
  EXPECT_EQ(found.infinities, 1);
  EXPECT_EQ(found.first_infinity, 7);
  EXPECT_EQ(found.min, -4);
  EXPECT_EQ(found.max, 9);
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16, DType::kFloat64}) {
    const Tensor other = Converted(logical.view(), dtype);
    const Buffer plain{.name = "v", .dtype = dtype, .shape = {3, 5}};
    const ScannedValue same = ScanValue(plain, other.data());
    EXPECT_EQ(same.first_nan, 14);
    EXPECT_EQ(same.first_infinity, 7);
    EXPECT_EQ(same.max, 9);
  }
}

}  // namespace
}  // namespace gradloom
