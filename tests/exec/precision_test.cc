// Recorded training runs in mixed precision: close to float32, and with the same bits however the plan is arranged.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/conformance/run_case.h"

namespace gradloom {
namespace {

struct Example {
  const char* name;
  double bfloat16, float16;  // how far losses may deviate from float32, relative
};

class PrecisionTest : public testing::TestWithParam<Example> {
 protected:
  static TrainingRun Train(Precision precision, RunOptions options = {}) {
    options.precision = precision;
    if (precision == Precision::kFloat16) options.loss_scale = {.initial = 1024, .dynamic = true};
    return RunCase(Recorded(), options);
  }
  static TrainingCase Recorded() { return ReadTrainingCase(std::string("tests/conformance/cases/") + GetParam().name); }

  static double Distance(const TrainingRun& a, const TrainingRun& b) {
    double worst = 0;
    for (size_t i = 0; i < a.losses.size(); ++i) worst = std::max(worst, std::abs(a.losses[i] - b.losses[i]) / std::abs(a.losses[i]));
    return worst;
  }
  static bool SameBits(const TrainingRun& a, const TrainingRun& b) {
    bool same = a.losses == b.losses;
    for (const auto& [name, tensor] : a.parameters) {
      const Tensor& other = b.parameters.at(name);
      same &= tensor.bytes() == other.bytes() && std::memcmp(tensor.data(), other.data(), static_cast<size_t>(tensor.bytes())) == 0;
    }
    return same;
  }
};

TEST_P(PrecisionTest, LossesAreCloseToFloat32) {
  const TrainingRun wide = Train(Precision::kFloat32), bfloat16 = Train(Precision::kBfloat16), float16 = Train(Precision::kFloat16);
  std::printf("%s: bfloat16 %.2e, float16 %.2e\n", GetParam().name, Distance(wide, bfloat16), Distance(wide, float16));
  EXPECT_LE(Distance(wide, bfloat16), GetParam().bfloat16);
  EXPECT_LE(Distance(wide, float16), GetParam().float16);
  // Rounding must be visible, otherwise nothing was lowered.
  EXPECT_GT(Distance(wide, bfloat16), 0);
  // Parameters are float32 in every precision.
  for (const std::string& name : Recorded().trainable) EXPECT_EQ(bfloat16.parameters.at(name).dtype(), DType::kFloat32) << name;
}

TEST_P(PrecisionTest, FusionAndStreamsChangeNoBit) {
  const TrainingRun plain = Train(Precision::kBfloat16);
  EXPECT_TRUE(SameBits(plain, Train(Precision::kBfloat16, {.disabled_passes = {"fuse_pointwise"}})));
  EXPECT_TRUE(SameBits(plain, Train(Precision::kBfloat16, {.streams = 3, .chaos = 11})));
}

TEST_P(PrecisionTest, DevicesShareABatch) {
  const TrainingRun one = Train(Precision::kBfloat16), two = Train(Precision::kBfloat16, {.devices = "cpu:2", .chaos = 3});
  std::printf("%s: %.2e between one and two devices\n", GetParam().name, Distance(one, two));
  EXPECT_LE(Distance(one, two), GetParam().bfloat16);
}

INSTANTIATE_TEST_SUITE_P(Cases, PrecisionTest,
                         testing::Values(Example{"housing_mlp", 1e-3, 1e-4}, Example{"lenet", 1e-3, 2e-4}, Example{"tiny_gpt", 1e-3, 1e-4},
                                         Example{"unet_small", 1e-3, 2e-4}, Example{"lstm_classifier", 2e-3, 2e-4},
                                         Example{"recommender", 2e-2, 1e-3}, Example{"resnet_cifar", 3e-2, 5e-3}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gradloom
