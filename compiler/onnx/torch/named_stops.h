// Values that the user declares as detached, for files that do not mark them. Private to compiler/onnx.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "onnx/onnx_pb.h"

namespace gradloom {

class NamedStops {
 public:
  // Each text is VALUE, or VALUE@NODE for the use of the value by this one node. Both may be patterns.
  explicit NamedStops(const std::vector<std::string>& texts);

  bool empty() const { return stops_.empty(); }

  // Whether gradients stop at the value for all readers.
  bool AtValue(const std::string& value);
  // Whether gradients stop where a certain node reads the value. `reader`: the node's own name and the names of its outputs.
  bool AtReader(const std::string& value, const std::vector<std::string>& reader);

  // Records the values that no node makes, for messages, and a node that is not imported but whose values may still be named.
  void RecordGraph(const onnx::GraphProto& graph);
  void RecordSkipped(const onnx::NodeProto& node);

  // To be called after all nodes have been visited. Throws Error(kConfig) for a text that matches nothing, with similar names.
  void Check() const;

 private:
  struct Stop {
    std::string value, reader;  // "": any
    bool used = false;
    std::vector<std::string> reads;  // the values that a matching reader reads
  };

  [[noreturn]] void Refuse(const Stop& stop) const;

  std::vector<Stop> stops_;
  std::set<std::string> values_, readers_, weights_, inputs_;
};

}  // namespace gradloom
