// A summary of an ONNX file for people, which does not need an import.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/onnx/import.h"

namespace gradloom {

struct ModelSummary {
  struct Weight {
    std::string name;
    TensorView type;  // without data
  };

  std::string graph, producer;
  int64_t ir_version = 0;
  std::vector<std::pair<std::string, int64_t>> opsets;               // "ai.onnx", 17
  std::vector<std::pair<std::string, std::string>> inputs, outputs;  // names and types: "x", "float32[N,4]"
  std::map<std::string, int64_t> operators;                          // of the main graph: the number of nodes of each operator
  int64_t nodes = 0, functions = 0;
  std::vector<Weight> weights;  // the initializers of the main graph
};

// The inputs in the summary are those that must be fed.
ModelSummary SummaryOf(const Model& model);

}  // namespace gradloom
