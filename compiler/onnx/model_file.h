// What a Model holds. Private to this directory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/onnx/import.h"
#include "onnx/onnx_pb.h"
#include "runtime/base/tensor.h"

namespace gradloom {

// One tensor of a model with the name that its value has in a Graph.
struct ModelTensor {
  std::string name;
  Tensor data;
};

struct ModelFile {
  std::string path;
  LoadOptions options;
  std::string hash;
  // Without the tensors' elements: those are in `tensors`, once for all graphs imported from here.
  onnx::ModelProto proto;
  // By the address of the TensorProto or SparseTensorProto in `proto`.
  std::unordered_map<const void*, ModelTensor> tensors;
  std::vector<std::string> warnings;
};

// The messages of a file, checked, without what tensors have as raw data or external data. Throws what Model::Load throws before it reads
// tensors.
std::shared_ptr<ModelFile> ReadModelProto(const std::string& path, const LoadOptions& options);

// A place in a model where a tensor stands: exactly one of the two is set.
struct TensorSite {
  std::string name;  // the value's
  onnx::TensorProto* dense = nullptr;
  onnx::SparseTensorProto* sparse = nullptr;
  bool parameter_like = false;  // an initializer or the tensor of a Constant node, not another attribute
  // What holds a parameter-like tensor, one of the two: the graph among whose initializers it is, or the attribute.
  onnx::GraphProto* graph = nullptr;
  onnx::AttributeProto* attribute = nullptr;
};

// Calls `f` on every tensor of the model, those of functions, of nested graphs and of training_info included, in
// a fixed order. Names are unique: in the main graph the initializer's or the Constant's output's; inside
// others after the path of their owners. Equal files give equal names.
void ForEachTensor(onnx::ModelProto& model, const std::function<void(const TensorSite&)>& f);

}  // namespace gradloom
