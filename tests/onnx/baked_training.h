// Trains small models whose batch size may be a number in the file, at other batch sizes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/onnx/export/export.h"
#include "compiler/onnx/import.h"
#include "runtime/base/tensor.h"

namespace gradloom {

// Uniform in [-1, 1); the same for the same seed.
Tensor Random(const Shape& shape, uint64_t seed);

// Imports a graph, given as ONNX text without the header.
ImportedGraph At(const std::string& graph, int64_t batch);

struct Trained {
  std::vector<double> losses;                // per step
  std::map<std::string, Tensor> parameters;  // after the last step
  ModelInfo info;
};

// Trains on batches of these sizes, each an entry of one plan, after entries for the sizes `first`. The last batch of an epoch may be
// smaller. `trainable`: patterns of further parameters. The loss is the mean squared error of output z and target y.
Trained Train(const Model& model, const std::vector<int64_t>& sizes, int devices = 1, const std::vector<int64_t>& first = {},
              const std::vector<std::string>& trainable = {});

}  // namespace gradloom
