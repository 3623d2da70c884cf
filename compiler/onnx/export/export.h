// Writes trained values back to an ONNX file.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/onnx/import.h"
#include "runtime/base/tensor.h"

namespace gradloom {

struct DevicePlacement;

struct ExportOptions {
  // If the model would be larger than this, tensors are written to a file next to it, with the suffix ".data".
  int64_t inline_bytes = 1'800'000'000;
  // The outputs to keep, with the nodes, inputs and initializers that they need; empty: all. Error(kConfig) with the existing names for a
  // name that is not an output.
  std::vector<std::string> outputs = {};
  // Written as ONNX's multi-device annotations, replacing those of the file. Null: the file's annotations are kept.
  const DevicePlacement* placement = nullptr;
};

// Values by name. Each is read when it is needed, so that not all of them must be in memory at the same time.
struct TrainedValues {
  std::map<std::string, TensorView> types;  // without data
  std::function<Tensor(const std::string& name)> read;
};
TrainedValues ValuesOf(const std::map<std::string, Tensor>& values);  // borrows `values`
// All of them. Throws Error(kResource) if there is no memory for that.
std::map<std::string, Tensor> ReadAll(const TrainedValues& values);

// The floating-point tensors whose elements `info` contains, because training does not change them: frozen weights, and numbers in the
// code. By name, as for ExportTrained; sparse ones are left out. Throws Error(kPlan) if `info` holds no model.
std::map<std::string, Tensor> KeptTensors(const ModelInfo& info);
// Their types and shapes, without data.
std::map<std::string, TensorView> KeptTypes(const ModelInfo& info);

// Writes the model stored in `info` with new values for tensors. Tensors are given by their names in a Graph: an initializer's name, or the
// output of a Constant node. Names that are not in the file are ignored.
//
// The graph, its names, operator sets, functions and metadata are kept, in the form for inference: BatchNormalization uses its statistics,
// and returns them if they are read; outputs that exist only in training are removed; Dropout passes on its input. A value is written with
// its element type in the file; a sparse tensor is written as a dense one. A tensor of which the file holds a copy for each sample (see
// Import) is repeated along that axis.
//
// Each value is read when it is written, so the memory that this takes is about that of the largest tensor, and of the tensors that `info`
// contains. The file appears complete or not at all. Throws Error(kShape) for a value with another shape; Error(kPlan) if `info` holds no
// model, or a tensor is neither in `info` nor in `values`; Error(kResource) if the file cannot be written; and what `values` throws.
void ExportTrained(const ModelInfo& info, const TrainedValues& values, const std::string& path, const ExportOptions& options = {});
void ExportTrained(const ModelInfo& info, const std::map<std::string, Tensor>& values, const std::string& path,
                   const ExportOptions& options = {});

// Stands for an extent of a target that has no name.
inline constexpr char kUnnamedExtent[] = "?";

// How a model is trained, as a graph appended to the model's own, for its training_info.
struct Algorithm {
  std::unique_ptr<Graph> graph;  // the model's nodes, followed from `first` on by those of the algorithm; all are ONNX operators
  NodeId first = -1;
  ValueId loss = kNoValue;
  std::vector<std::pair<ValueId, ValueId>> gradients;   // by parameter: the value that represents the gradient of the loss
  std::vector<ValueId> model_inputs;                    // all other inputs of the graph are targets
  std::map<ValueId, std::string> output_names;          // for the model's outputs whose values have other names
  std::map<ValueId, std::string> target_names;          // for targets whose values have other names
  std::map<ValueId, std::vector<std::string>> symbols;  // for targets: names of extents; "": the number, kUnnamedExtent: any extent
  bool restores_training = true;  // use batch statistics and dropout even where the file's nodes are in the form for inference
};

// Writes the file of ExportTrained with the algorithm as its only training_info: the loss, ONNX's Gradient of it, updates, and states. The
// values of states come from `values`, otherwise from the graph, otherwise they are zeros. Where training differs from inference, the
// algorithm contains copies of the nodes that differ and of all nodes that depend on them. Trained tensors of Constant nodes become
// initializers, because an algorithm cannot bind anything else. Throws what ExportTrained throws, and Error(kUnsupported) for an operator
// that the file's opset does not have, and for batch statistics, dropout and trained tensors in functions and nested graphs. Returns the
// targets that have another name in the file, because the model has a value of that name: the name there by that of the target.
std::map<std::string, std::string> ExportWithAlgorithm(const ModelInfo& info, const TrainedValues& values, const Algorithm& algorithm,
                                                       const std::string& path, const ExportOptions& options = {});

}  // namespace gradloom
