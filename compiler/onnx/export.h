// From trained values back to an ONNX file.
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
  // Tensors go to a file beside the model, its name with ".data" behind, when the model would be larger.
  int64_t inline_bytes = 1'800'000'000;
  // Written as ONNX's multi-device annotations, in place of those that the file has; null: the file's stay.
  const DevicePlacement* placement = nullptr;
};

// Values by name, each of them read when it is its turn, so that they need not lie in memory together.
struct TrainedValues {
  std::map<std::string, TensorView> types;  // without data
  std::function<Tensor(const std::string& name)> read;
};
TrainedValues ValuesOf(const std::map<std::string, Tensor>& values);  // which are borrowed

// Writes the model that `info` keeps, with the new values of tensors by the names that they have in a Graph (an
// initializer's own, a Constant node's output): the same graph, names, operator sets, functions and metadata, in the
// form for inference: BatchNormalization uses its statistics, and gives them where they are read; outputs that only
// training has are gone; Dropout passes its input. A value is written in the element type that the file has for it, a sparse tensor's as a
// dense one; one that the file holds a copy of for each sample (see Import) is repeated along that axis; names that are not the file's are
// none of export's business and are ignored. The file appears complete or not at all. Throws Error(kShape) for a value of another shape;
// Error(kPlan) where `info` holds no model, or left out a tensor that `values` lacks; Error(kResource) where the file cannot be written,
// and what `values` throws.
void ExportTrained(const ModelInfo& info, const TrainedValues& values, const std::string& path, const ExportOptions& options = {});
void ExportTrained(const ModelInfo& info, const std::map<std::string, Tensor>& values, const std::string& path,
                   const ExportOptions& options = {});

// The same to memory, as one file whatever its size up to 2 GiB; or with nodes of training as they are.
enum class ModelForm : uint8_t { kInference, kAsWritten };
std::string ExportedBytes(const ModelInfo& info, const std::map<std::string, Tensor>& values, ModelForm form = ModelForm::kInference);

// The name of an extent of a target that has none.
inline constexpr char kUnnamedExtent[] = "?";

// How a model is trained, as a graph behind the model's own, for its training_info.
struct Algorithm {
  std::unique_ptr<Graph> graph;  // the model's nodes, and from `first` on those of the algorithm, all of them ONNX's
  NodeId first = -1;
  ValueId loss = kNoValue;
  std::vector<std::pair<ValueId, ValueId>> gradients;   // by parameter: what stands for the gradient of the loss
  std::vector<ValueId> model_inputs;                    // the other inputs of the graph are targets
  std::map<ValueId, std::string> output_names;          // of the model's outputs whose values are called otherwise
  std::map<ValueId, std::string> target_names;          // of targets whose values are called otherwise
  std::map<ValueId, std::vector<std::string>> symbols;  // of targets: names of extents; "": the number, kUnnamedExtent: any
  bool restores_training = true;                        // whatever the file's nodes say: batch statistics, dropout
};

// ExportTrained's file with the algorithm as its one training_info: loss, ONNX's Gradient of it, updates, and states with the values that
// `values` has of them (else the graph's, else zeros). Where training differs from inference, the algorithm has the nodes that differ, and
// all that depend on them, once more; trained tensors of Constant nodes become initializers, as an algorithm binds nothing else. Throws
// what ExportTrained throws; Error(kUnsupported) for an operator that the file's opset lacks, batch statistics and dropout within
// functions and nested graphs, and trained tensors there.
void ExportWithAlgorithm(const ModelInfo& info, const std::map<std::string, Tensor>& values, const Algorithm& algorithm,
                         const std::string& path, const ExportOptions& options = {});

}  // namespace gradloom
