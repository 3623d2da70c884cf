// Changes to the main graph of a file in memory. Private to compiler/onnx.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/onnx/model_file.h"
#include "compiler/onnx/torch/module_signature.h"

namespace gradloom {

// The initializers of a main graph, and the names of values in it and in its nested graphs, where a new name would be another value's. The
// file must outlive it, and nothing else may add either meanwhile.
class EditedGraph {
 public:
  explicit EditedGraph(ModelFile& file);

  onnx::GraphProto& proto() { return *file_.proto.mutable_graph(); }
  ModelFile& file() { return file_; }

  // Null if there is no initializer of that name, or if the name also stands for a value of a nested graph.
  const onnx::TensorProto* Find(const std::string& name) const;
  // Of an initializer that Find finds.
  Tensor& DataOf(const std::string& name) { return file_.tensors.at(Find(name)).data; }

  bool IsTaken(const std::string& name) const { return taken_.contains(name); }
  // Returns false if a value has the name already.
  bool Take(const std::string& name) { return taken_.insert(name).second; }
  // Takes the name, or one that begins with it.
  std::string TakeSimilar(std::string name);

  // `name` must have been taken.
  void AddInitializer(const std::string& name, Tensor data);

 private:
  ModelFile& file_;
  std::map<std::string, const onnx::TensorProto*> initializers_;
  NameSet taken_;
};

// Calls `f` for the graph and all that are nested in it.
void ForEachGraph(onnx::GraphProto& graph, const std::function<void(onnx::GraphProto&)>& f);

// By value: how often nodes, those of nested graphs included, and outputs read it.
std::map<std::string, int> CountReaders(onnx::GraphProto& graph);

// The number of features that a Conv, ConvTranspose or Gemm with this weight computes. nullopt for weights and groups that do not fit.
std::optional<int64_t> FeaturesOf(const onnx::NodeProto& layer, const Shape& weight);

// A node that transposes a matrix.
onnx::NodeProto TransposeNode(const std::string& name, const std::string& matrix, const std::string& transposed);

// Adds nodes before all others.
void Prepend(std::vector<onnx::NodeProto> nodes, onnx::GraphProto& graph);

// Adds nodes after these of the graph, which stay where they are in memory: their tensors are known by address.
void InsertAfter(std::map<const onnx::NodeProto*, std::vector<onnx::NodeProto>> added, onnx::GraphProto& graph);

}  // namespace gradloom
