// Values that a file says are detached: they are computed with, and no gradient goes through them. ONNX has no operator for that, but
// exporters leave traces. Private to this directory.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "onnx/onnx_pb.h"

namespace gradloom {

class DetachedValues {
 public:
  explicit DetachedValues(const onnx::ModelProto& model);

  // Whether an Identity is what became of a `detach()` in PyTorch (torch.export calls it so), or of a `stop_gradient` in JAX.
  bool IsDetach(const onnx::NodeProto& identity) const;

  // Which inputs of the node were behind a `detach()` whose Identity the exporter has taken out again: PyTorch's notes of where a node
  // comes from still name it. Null: none.
  const std::set<int>* OperandsOf(const onnx::NodeProto& node) const;

  // Names of nodes that read a detached value in a place that their notes do not tell.
  const std::vector<std::string>& unclear() const { return unclear_; }

 private:
  using NodeList = google::protobuf::RepeatedPtrField<onnx::NodeProto>;
  struct Source;

  void Search(const NodeList& nodes, const std::set<std::string>& constants);
  void Resolve(const Source& source, const std::set<std::string>& constants);

  bool jax_;
  std::map<const onnx::NodeProto*, std::set<int>> operands_;
  std::vector<std::string> unclear_;
};

// Whether it is of PyTorch's exporter that traces a module (`dynamo=False`), and not torch.export's.
bool IsTracedByTorch(const onnx::ModelProto& proto);

}  // namespace gradloom
