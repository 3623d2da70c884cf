// Checks that the names in a model are valid, printable UTF-8 of bounded length. Private to compiler/onnx.
#pragma once

#include <string>

#include "compiler/onnx/import.h"
#include "onnx/onnx_pb.h"

namespace gradloom {

// A node in messages: "Gemm '/fc/Gemm'". A node without a name is identified by its first output.
std::string Describe(const onnx::NodeProto& node);

// Throws Error(kName) for a name with control characters or invalid UTF-8, and Error(kLimit) for a name longer than limits.name_bytes. In
// messages `what` is the kind of thing that has the name ("a node"), and `of` its place.
class NameRules {
 public:
  NameRules(const std::string& where, const ModelLimits& limits) : where_(where), limits_(limits) {}

  void Check(const std::string& name, const char* what, const std::string& of = {}) const;
  // All names of the node, including those of its attributes, but not those in nested graphs.
  void Check(const onnx::NodeProto& node) const;
  // The names of values, initializers and dimensions, but not those of the graph's nodes.
  void Check(const onnx::GraphProto& graph) const;

 private:
  void Check(const onnx::ValueInfoProto& info, const char* what) const;

  const std::string& where_;
  const ModelLimits& limits_;
};

}  // namespace gradloom
