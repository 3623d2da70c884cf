// Values that whoever trains a file says are detached, for files that say nothing of it. Private to this directory.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "onnx/onnx_pb.h"

namespace gradloom {

class NamedStops {
 public:
  // Each text is VALUE, or VALUE@NODE: as this one node reads it. Both may be patterns.
  explicit NamedStops(const std::vector<std::string>& texts);

  bool empty() const { return stops_.empty(); }

  // Whether gradients stop at the value, wherever it is read.
  bool AtValue(const std::string& value);
  // Whether they stop where a node of these names (its own and those of what it makes) reads the value.
  bool AtReader(const std::string& value, const std::vector<std::string>& reader);

  // What no node makes, for messages; and a node that is not run, whose values may be named all the same.
  void SeeGraph(const onnx::GraphProto& graph);
  void SeeLeftOut(const onnx::NodeProto& node);

  // Once all nodes have been asked for. Throws Error(kConfig) for a text that fits nothing, with what is near.
  void Check() const;

 private:
  struct Stop {
    std::string value, reader;  // "": any
    bool used = false;
    std::vector<std::string> reads;  // of a reader that fits
  };

  [[noreturn]] void Refuse(const Stop& stop) const;

  std::vector<Stop> stops_;
  std::set<std::string> values_, readers_, weights_, inputs_;
};

}  // namespace gradloom
