// Detects and repairs a wrong order of nodes. Private to this directory.
#pragma once

#include <string>

#include "onnx/onnx_pb.h"

namespace gradloom {

// To be used if `reader` reads `name`, which no node before it makes. `nodes` are those of one graph or function. Describes the cycle that
// the nodes form, or says that a later node makes the value; empty if no node makes it.
std::string OrderFault(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes, const onnx::NodeProto& reader,
                       const std::string& name);

// Sorts the nodes of each graph and function of a model so that each node follows those that make its inputs. Otherwise their order is
// kept, and the nodes of a cycle are not moved. ONNX requires such an order, but converters to half precision append their casts, and
// onnxruntime sorts what it reads. Returns whether a node was moved. The addresses of messages do not change.
bool SortNodes(onnx::ModelProto& model);

}  // namespace gradloom
