// The instruction that made the first NaN or infinity, on emulated GPUs.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>

#include "tests/cuda/emulated_code.h"
#include "tests/cuda/emulated_runtime.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

class NumericsOnEmulatedGpus : public testing::Test {
 protected:
  void SetUp() override { emulated::Reset({.devices = 2, .seed = 7}); }
  void TearDown() override {
    EXPECT_EQ(cuda::SourcesCompiledLate(), 0);
    emulated::Reset({});
  }
};

// A logarithm in a loop, which the host decides.
std::string Net(std::mt19937& random) {
  return "g (float[N, 4] x) => (float[N, 3] z)\n<" + Weights(random, "u", {4, 3}) +
         ", int64 three = {3}>\n{\n a = Abs (x)\n d = Loop (three, , a) <body = l (int64 k, bool going, float[N, 4] p) => (bool again, "
         "float[N, 4] q) { r = Log (p) q = Abs (r) again = Identity (going) }>\n z = MatMul (d, u)\n}\n";
}

TEST_F(NumericsOnEmulatedGpus, FindTheNodeAndChangeNoBit) {
  std::mt19937 random(5);
  const std::string graph = Net(random);
  const Batch good = {{"x", Random(random, {6, 4})}, {"t", Random(random, {6, 3})}};
  Batch bad = {{"x", Tensor::Copy(good.at("x").view())}, {"t", good.at("t")}};
  bad.at("x").as<float>()[5 * 4 + 2] = 0;
  for (const int devices : {1, 2}) {
    CompileOptions options = OptionsFor({{.type = "mse", .output = "z", .target = "t"}}, devices, {6});
    options.recipe.device = DeviceKind::kCuda;
    options.recipe.isa = "sm_90";
    options.recipe.streams = 2;
    options.control.disabled = {"fuse_pointwise"};
    const auto plan = std::make_shared<const Plan>(Compile(ModelOf(graph), options));
    std::map<std::string, Tensor> results[2];
    for (const bool check : {false, true}) {
      SessionOptions session_options;
      session_options.executor.check_numerics = check;
      if (devices == 1) session_options.executor.ordinals = {0};
      Session session(plan, session_options);
      for (int step = 0; step < 3; ++step)
        results[check].emplace("loss " + std::to_string(step), Tensor::Scalar(session.Step(Views(good)).loss));
      for (const StateTensor& state : plan->state) results[check].emplace(state.name, session.Get(state.name));
      EXPECT_EQ(session.NonFiniteOrigin(""), "");
      EXPECT_FALSE(std::isfinite(session.Step(Views(bad)).loss));
      const std::string origin = session.NonFiniteOrigin("");
      if (!check) {
        EXPECT_EQ(origin, "");
        continue;
      }
      EXPECT_EQ(origin.substr(0, 3), "Log") << origin;
      EXPECT_NE(origin.find(" in the forward pass of step 4"), std::string::npos) << origin;
      EXPECT_NE(origin.find("' is from 0 to "), std::string::npos) << origin;
      EXPECT_EQ(origin.find(", on device 1") != std::string::npos, devices == 2) << origin;
    }
    ExpectSameBits(results[0], results[1]);
  }
}

}  // namespace
}  // namespace gradloom
