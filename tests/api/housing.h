// Models for the tests of the C++ interface.
#pragma once

#include <gradloom/gradloom.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
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

// A model from the main graph in text form, opset 17.
inline gradloom::Model ModelOfText(const std::string& name, const std::string& graph) {
  const std::string path = TemporaryFile(name + ".onnxtxt");
  std::ofstream(path) << "<ir_version: 8, opset_import: [\"\" : 17]>\n" << graph;
  return gradloom::Model(path);
}

// With a learning rate of 0 and batches of 4.
inline gradloom::Plan CompiledWith(const gradloom::Model& model, const std::string& loss) {
  return gradloom::Compile(model, {.loss = gradloom::Loss(loss), .optimizer = gradloom::Sgd{.lr = 0}, .batch = 4});
}

// Three positions of three scores, so that the shapes do not tell along which axis the classes are.
struct Sequence {
  gradloom::Model model = ModelOfText(
      "sequence", "g (float[N, 3, 3] x) => (float[N, 3, 3] s) <float[3, 3] w = {1, 0, 0, 0, 1, 0, 0, 0, 1}> { s = MatMul (x, w) }");
  std::vector<float> x = std::vector<float>(4 * 9);
  std::vector<int64_t> y = std::vector<int64_t>(4 * 3);

  // The largest score of each position is that of its class.
  Sequence() {
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] = static_cast<int64_t>(i * i % 3);
      x[i * 3 + static_cast<size_t>(y[i])] = 1;
    }
  }
  gradloom::Dataset data() const {
    return gradloom::Dataset(gradloom::Feeds{{"x", TensorView(x.data(), {4, 3, 3})}, {"y", TensorView(y.data(), {4, 3})}});
  }
};
