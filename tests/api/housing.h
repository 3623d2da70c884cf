// The housing model for the tests of the C++ interface.
#pragma once

#include <gradloom/gradloom.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

using gradloom::TensorView;

inline constexpr int64_t kBatch = 32;

// Random features and targets of the housing model.
struct Samples {
  std::vector<float> features = std::vector<float>(kBatch * 13), target = std::vector<float>(kBatch);

  explicit Samples(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& value : features) value = normal(random);
    for (float& value : target) value = normal(random);
  }
  gradloom::Feeds feeds() const {
    return {{"features", TensorView(features.data(), {kBatch, 13})}, {"target", TensorView(target.data(), {kBatch, 1})}};
  }
};

inline gradloom::Plan CompileHousing(gradloom::CompileOptions options = {}) {
  options.loss = gradloom::Loss::Mse("value", "target");
  if (options.optimizer.settings().empty()) options.optimizer = gradloom::Adam{.lr = 0.01};
  if (options.devices.empty()) options.devices = "cpu";
  options.batch = kBatch;
  return gradloom::Compile(gradloom::Model("models/housing_mlp.onnx"), options);
}

inline const gradloom::Plan& Plain() {
  static const gradloom::Plan plan = CompileHousing();
  return plan;
}

inline const gradloom::Plan& WithGradients() {
  static const gradloom::Plan plan = CompileHousing({.gradients = true, .outputs = true});
  return plan;
}

inline std::string TemporaryFile(const std::string& name) { return testing::TempDir() + "/" + name; }
