// What is wrong with the order of nodes. Private to this room.
#pragma once

#include <string>

#include "onnx/onnx_pb.h"

namespace gradloom {

// Of the nodes of one graph or function, where `reader` reads `name`, which no node before it makes: the cycle that they form, or that a
// later node makes it; empty where none does.
std::string OrderFault(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes, const onnx::NodeProto& reader,
                       const std::string& name);

}  // namespace gradloom
