// The nodes of a model that training runs in another way than inference. Private to this directory.
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
  // BatchNormalization with the batch's statistics and Dropout that drops, and all nodes that depend on one of them, with outputs of names
  // of their own; the rest of the model is read where it is.
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
  std::map<std::string, std::string> renamed;                   // values of the model that have another name there
  std::vector<std::pair<std::string, std::string>> statistics;  // initializers with what they become
  std::string true_name;                                        // a bool [] that some node reads, which is true; empty: none does
};

// `restores`: of all such nodes; else of those alone that the file has in the form of training. `new_name` makes a name that nothing has.
// Throws Error(kUnsupported) where the file's opset has no such form, and for such nodes in functions and nested graphs.
TrainingForm TrainingFormOf(const onnx::ModelProto& model, bool restores, const NewName& new_name);

}  // namespace gradloom
