// The nodes of a model that differ between training and inference. Private to compiler/onnx.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "onnx/onnx_pb.h"

namespace gradloom {

using NewName = std::function<std::string(const std::string& wanted)>;

struct TrainingForm {
  // BatchNormalization with batch statistics, active Dropout, and all nodes that depend on one of them. Their outputs have new names. They
  // read other values of the model under their usual names.
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
  std::map<std::string, std::string> renamed;                   // new names of values of the model
  std::vector<std::pair<std::string, std::string>> statistics;  // initializers with their next values
  std::string true_name;                                        // a bool [] with the value true that some node reads; empty: no node does
};

// `restores`: converts all such nodes; otherwise only those that are in the form for training in the file. `new_name` returns a name that
// is not used. Throws Error(kUnsupported) if the file's opset has no such form, and for such nodes in functions and nested graphs.
TrainingForm TrainingFormOf(const onnx::ModelProto& model, bool restores, const NewName& new_name);

}  // namespace gradloom
