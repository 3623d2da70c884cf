// Names in a model: valid, printable UTF-8 of bounded length. Private to this directory.
#pragma once

#include <string>

#include "compiler/onnx/import.h"
#include "onnx/onnx_pb.h"

namespace gradloom {

// "Gemm '/fc/Gemm'": a node for a message; one without a name goes by its first output.
std::string Describe(const onnx::NodeProto& node);

// Throws Error(kName) for a name with control characters or bytes that are no UTF-8, and Error(kLimit) for one past limits.name_bytes.
// `what` says what has the name ("a node"), `of` where that is.
class NameRules {
 public:
  NameRules(const std::string& where, const ModelLimits& limits) : where_(where), limits_(limits) {}

  void Check(const std::string& name, const char* what, const std::string& of = {}) const;
  // All names of the node, those of its attributes included; not those of nested graphs.
  void Check(const onnx::NodeProto& node) const;
  // Those of values, initializers and dimensions; not those of its nodes.
  void Check(const onnx::GraphProto& graph) const;

 private:
  void Check(const onnx::ValueInfoProto& info, const char* what) const;

  const std::string& where_;
  const ModelLimits& limits_;
};

}  // namespace gradloom
