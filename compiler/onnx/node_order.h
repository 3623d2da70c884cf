// What is wrong with the order of nodes, and how it is mended. Private to this directory.
#pragma once

#include <string>

#include "onnx/onnx_pb.h"

namespace gradloom {

// Of the nodes of one graph or function, where `reader` reads `name`, which no node before it makes: the cycle that they form, or that a
// later node makes it; empty where none does.
std::string OrderFault(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes, const onnx::NodeProto& reader,
                       const std::string& name);

// Brings the nodes of each graph and function of a model into an order in which each comes after those that make its inputs, and otherwise
// as they were; those of a cycle stay. ONNX asks for such an order, but converters to half precision append their casts, and onnxruntime
// sorts what it reads. Whether anything was moved. Messages keep their addresses.
bool SortNodes(onnx::ModelProto& model);

}  // namespace gradloom
