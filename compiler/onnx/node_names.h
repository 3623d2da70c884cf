// The names of a file's nodes in a Graph. Private to compiler/onnx.
#pragma once

#include <set>
#include <string>

#include "onnx/onnx_pb.h"

namespace gradloom {

// Next must be called for the nodes of the main graph in order. A node without a name gets one from its operator and its first output. If a
// name is taken, the first output is appended, as in the importer.
class NodeNames {
 public:
  std::string Next(const onnx::NodeProto& node) {
    std::string first_output;
    for (const std::string& output : node.output()) {
      if (first_output.empty()) first_output = output;
    }
    std::string name = node.name().empty() ? node.op_type() + "/" + first_output : node.name();
    if (!taken_.insert(name).second) taken_.insert(name += "/" + first_output);
    return name;
  }

 private:
  std::set<std::string> taken_;
};

}  // namespace gradloom
