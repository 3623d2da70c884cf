// Gives operators that behave differently in training the behaviour that an entry needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"

namespace gradloom {

enum class ModelView : uint8_t {
  kTrain,      // batch statistics and dropout, whatever the file says
  kAsWritten,  // what each node's training_mode says
  kInference,  // running statistics, no dropout
};

// Rewrites BatchNormalization and Dropout. With batch statistics, a BatchNormalization becomes gradloom.BatchNormTrain, and its running
// statistics become states with a next value by ONNX's rule, running = momentum * running + (1 - momentum) * batch, with the biased
// variance. Nodes that share statistics update them one after the other. Active dropout becomes gradloom.Dropout, inactive dropout an
// Identity.
void ApplyTrainingView(GraphBuilder& builder, ModelView view);

// The BatchNormalization nodes, by origin, that have a single value per channel in `samples` of the `batch` samples that the graph is for.
// With batch statistics such a value is its own mean, so the result is the shift, whatever the input.
std::vector<std::string> NormsOfOneValue(const Graph& graph, int64_t batch, int64_t samples);

}  // namespace gradloom
