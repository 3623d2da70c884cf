// `x[mask] = value`, which PyTorch's default exporter writes as a ScatterND at the positions where the mask is true, with a copy of the
// value for each: operators whose extents depend on the data, for what is a Where. Private to compiler/onnx.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "onnx/onnx_pb.h"

namespace gradloom {

// The names of one such write, as far as the nodes show it. Whether the shapes fit is known when its ScatterND is imported.
struct MaskedWrite {
  std::string mask;    // broadcasts to the data
  std::string chosen;  // the same mask, with one element per value that is written; the mask has further axes of extent 1 behind it
  std::string value;
  const onnx::NodeProto* copies = nullptr;        // the Expand of the value
  std::vector<const onnx::NodeProto*> only = {};  // nodes that only this write needs, in order
};

// The masked writes among the nodes of one graph.
class MaskedWrites {
 public:
  explicit MaskedWrites(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes);

  // The write that this ScatterND completes, or null.
  const MaskedWrite* Find(const onnx::NodeProto& node) const;
  // Whether only a write needs the node.
  bool IsOnlyFor(const onnx::NodeProto& node) const { return only_.contains(&node); }

 private:
  std::map<const onnx::NodeProto*, MaskedWrite> writes_;
  std::set<const onnx::NodeProto*> only_;
};

}  // namespace gradloom
