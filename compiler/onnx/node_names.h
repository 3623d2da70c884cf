// The names that nodes of a file's graph get in a Graph. Private to this directory.
#pragma once

#include <set>
#include <string>

#include "onnx/onnx_pb.h"

namespace gradloom {

// Asked of the nodes of the main graph in their order. A node without a name has that of its operator and its first output; where two have
// one name, the later one has its first output behind it, as the importer has it.
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
