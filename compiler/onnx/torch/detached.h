// Values that a file marks as detached: they are used as usual, but gradients do not flow through them. ONNX has no operator for this, but
// exporters leave traces. Private to compiler/onnx.
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

  // Whether an Identity comes from a `detach()` in PyTorch (torch.export names it so) or a `stop_gradient` in JAX.
  bool IsDetach(const onnx::NodeProto& identity) const;

  // The inputs of the node that came from a `detach()` whose Identity the exporter has removed: PyTorch's metadata about the node's origin
  // still names it. Null: none.
  const std::set<int>* OperandsOf(const onnx::NodeProto& node) const;

  // Names of nodes that read a detached value, but whose metadata does not tell which input it is.
  const std::vector<std::string>& ambiguous() const { return ambiguous_; }

 private:
  using NodeList = google::protobuf::RepeatedPtrField<onnx::NodeProto>;
  struct Source;

  void Search(const NodeList& nodes, const std::set<std::string>& constants);
  void FindRemoved(const onnx::GraphProto& graph);
  void Resolve(const Source& source, const std::set<std::string>& constants);

  bool jax_;
  std::map<const onnx::NodeProto*, std::set<int>> operands_;
  std::vector<std::string> ambiguous_;
};

// Whether the file was written by PyTorch's tracing exporter (`dynamo=False`), and not by torch.export's.
bool IsTracedByTorch(const onnx::ModelProto& proto);

}  // namespace gradloom
