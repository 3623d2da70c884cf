// The data of a Model. Private to compiler/onnx.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/onnx/import.h"
#include "onnx/onnx_pb.h"
#include "runtime/base/tensor.h"

namespace gradloom {

// One tensor of a model, with the name of its value in a Graph.
struct ModelTensor {
  std::string name;
  Tensor data;
};

struct ModelFile {
  std::string path;
  LoadOptions options;
  std::string hash;
  // Without the elements of tensors. These are in `tensors`, once for all graphs imported from this file.
  onnx::ModelProto proto;
  // By the address of the TensorProto or SparseTensorProto in `proto`.
  std::unordered_map<const void*, ModelTensor> tensors;
  std::vector<std::string> warnings;
  std::optional<std::vector<TiedTensor>> tied = {};  // of a plan's model: those of the plan
  std::vector<std::string> restored = {};            // by RestoreParameters
};

// Reads and checks the messages of a file, without the raw data and external data of tensors. Throws what Model::Load throws before it
// reads tensors.
std::shared_ptr<ModelFile> ReadModelProto(const std::string& path, const LoadOptions& options);

// The place of a tensor in a model: exactly one of `dense` and `sparse` is set.
struct TensorSite {
  std::string name;  // of the value
  onnx::TensorProto* dense = nullptr;
  onnx::SparseTensorProto* sparse = nullptr;
  bool parameter_like = false;  // an initializer or the tensor of a Constant node, not another attribute
  // The owner of a parameter-like tensor, one of the two: the graph that has it as an initializer, or the attribute.
  onnx::GraphProto* graph = nullptr;
  onnx::AttributeProto* attribute = nullptr;
};

// Calls `f` for every tensor of the model, including functions, nested graphs and training_info, in a fixed order. Names are unique. In the
// main graph, it is the name of the initializer or of the Constant's output; elsewhere, it follows the path of the owners. Equal files give
// equal names.
void ForEachTensor(onnx::ModelProto& model, const std::function<void(const TensorSite&)>& f);

// Makes a trained sparse tensor a dense one, because the zeros that it omits are trained too. Sites found before may not be valid any more,
// except those of other sparse tensors.
void MakeDense(const TensorSite& site, const Tensor& value);

// A new value for a tensor of a model: of the shape and the element type (TensorProto.DataType) that the tensor has in the file, repeated
// if the file holds a copy for each sample. `where` names the tensor in messages. Throws Error(kShape) if the shape differs otherwise,
// Error(kUnsupported) for an element type that a Graph cannot hold.
Tensor ValueInFile(const Tensor& value, const Shape& shape, int32_t data_type, const std::string& where);

}  // namespace gradloom
