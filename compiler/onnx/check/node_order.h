// Detects and repairs a wrong order of nodes. Private to compiler/onnx.
#pragma once

#include <string>

#include "onnx/onnx_pb.h"

namespace gradloom {

// Call this if `reader` reads `name`, which no earlier node produces. `nodes` are those of one graph or function. Describes the cycle that
// the nodes form, or says that a later node produces the value; empty if no node does.
std::string OrderFault(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes, const onnx::NodeProto& reader,
                       const std::string& name);

// Sorts the nodes of each graph and function of a model so that each node follows those that produce its inputs. Otherwise their order is
// kept, and the nodes of a cycle are not moved. ONNX requires such an order, but converters to half precision append their casts, and
// onnxruntime sorts what it reads. Returns whether a node was moved. The addresses of messages do not change.
bool SortNodes(onnx::ModelProto& model);

}  // namespace gradloom
