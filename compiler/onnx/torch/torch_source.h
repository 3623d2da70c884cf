// What PyTorch's exporter notes about the origin of a node. Private to compiler/onnx.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "onnx/onnx_pb.h"

namespace gradloom {

// The keys of a node's metadata with its line of torch.export's graph, and the modules that its code is in.
inline constexpr std::string_view kTorchSource = "pkg.torch.onnx.fx_node", kTorchScopes = "pkg.torch.onnx.name_scopes";

// Returns the line of torch.export's graph that a node comes from, such as
// %add : [num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%relu, %detach), kwargs = {})
// Empty: the file does not say, or another exporter wrote it.
std::string_view TorchSource(const onnx::NodeProto& node);

// A name in torch.export's graph, which numbers the calls of an operator: linear, linear_1, ...
struct CallName {
  explicit CallName(std::string_view name);
  std::string_view base;
  int64_t number = 0;
};

// The names in such a line, without %: its own first, then those of values, and those that stand for the module's tensors.
std::vector<std::string_view> NamesOfCall(std::string_view line);

// A place in the code of the module from which a node comes.
struct CodeFrame {
  std::string_view file, line, function;
  std::string_view text;  // the line of code
};

// From the module's forward() to the innermost function of that name. Empty: the file does not say.
std::vector<CodeFrame> FramesOf(const onnx::NodeProto& node);

// The row of a table without a gradient (padding_idx), if the node is a lookup of an nn.Embedding that has one:
// ... aten.embedding.default](args = (%p_weight, %ids, 0), kwargs = {})
std::optional<int64_t> PaddingRow(const onnx::NodeProto& node);

// A call in torch.export's graph. Empty for any other line. Borrows `source`.
struct TorchCall {
  std::string_view op;                       // without overload: "linear"
  std::vector<std::string_view> arguments;   // the positional ones as they are written, those in lists too: "%x", "None", "1e-05"
  std::vector<std::string_view> operands;    // those of all arguments that are names of tensors, without %, or None, which is empty
  std::vector<std::string_view> parameters;  // the names of keyword arguments

  explicit TorchCall(std::string_view source);

  // The operands that are neither among the names nor a parameter, buffer or constant of the module: the exporter has removed the operators
  // that made them, and the node reads what these read.
  std::vector<std::string_view> RemovedOperands(const std::set<std::string_view>& names) const;

  // "conv" for conv2d, convolution, conv_transpose1d; "layer_norm" for native_layer_norm; "batch_norm" for
  // _native_batch_norm_legit_no_training; and so on. Otherwise the operator.
  std::string_view family() const;
};

// The innermost place if more functions called forward() led to the node than modules: then one of them is no module's, but that of an
// autograd function, which has a backward() of its own.
std::optional<CodeFrame> FunctionFrame(const onnx::NodeProto& node);

// The names of all values of the graph, and of its inputs and outputs in torch.export's graph.
std::set<std::string_view> ValueNames(const onnx::GraphProto& graph);

// Whether a call of that name (view_3) gives elements of its operand as they are, in another shape or place.
bool MovesElements(std::string_view name);

// Whether an argument is a constant of the code: None, a number, or a tensor from torch.zeros and the like ("%zeros_1").
bool IsConstantOfCode(std::string_view argument);

// The module whose code the node comes from, "blocks.0.mlp"; empty for the outermost one. nullopt: the file does not say.
std::optional<std::string_view> ModuleOf(const onnx::NodeProto& node);

}  // namespace gradloom
