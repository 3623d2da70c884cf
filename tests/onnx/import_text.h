// Importing models from ONNX's text form in tests.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "compiler/graph/verify_graph.h"
#include "compiler/onnx/import.h"
#include "runtime/base/error.h"

namespace gradloom {

// A linear layer of five inputs and two outputs.
inline constexpr char kLinear[] = R"(
linear (float[N, 5] x) => (float[N, 2] pred)
<float[2, 5] w = {1,2,3,4,5,6,7,8,9,10}, float[2] b = {0.5, -1}>
{
  [fc] pred = Gemm <transB = 1> (x, w, b)
})";

// An opset 28 model with this main graph.
inline std::string Onnx(const std::string& graph, int opset = 28) {
  return "<ir_version: 10, opset_import: [\"\" : " + std::to_string(opset) + "]>\n" + graph;
}

inline ImportedGraph ImportText(const std::string& text, const ImportOptions& options = {}) {
  ImportedGraph imported = Import(Model::FromText(text), options);
  VerifyGraph(*imported.graph);
  return imported;
}

// The operators of the graph's nodes, separated by spaces.
inline std::string Operators(const Graph& graph) {
  std::string text;
  for (const Node& node : graph.nodes) text += (text.empty() ? "" : " ") + node.op;
  return text;
}

inline ErrorCode FailureOf(const std::string& text, const ImportOptions& options, std::string* message = nullptr) {
  try {
    ImportText(text, options);
  } catch (const Error& e) {
    if (message != nullptr) *message = e.Describe();
    return e.code();
  }
  ADD_FAILURE() << "was accepted";
  return ErrorCode::kInternal;
}

}  // namespace gradloom
