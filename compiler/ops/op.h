// An operator's row: everything that the compiler knows about it. An operator is in one place: the file of its family has the row and the
// gradient, written as a graph of other operators wherever possible.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/graph/graph.h"

namespace gradloom {

// Facts that passes use instead of lists of names.
enum Trait : uint32_t {
  kPointwise = 1u << 0,    // output element i depends only on element i of the broadcast inputs
  kNoGradient = 1u << 1,   // outputs are integers or piecewise constant: the gradient is zero everywhere
  kRandom = 1u << 2,       // the result depends on the seed, the batch number and the node's origin
  kCommutative = 1u << 3,  // the first two inputs may be swapped
  kUpdate = 1u << 4,       // an optimizer: output i is the next value of a parameter or state input
  kCollective = 1u << 5,   // a collective: never folded, merged or left out on one device
  kProduct = 1u << 6,      // sums of products of its operands, as matrix units compute them
  kSteps = 1u << 7,        // with kNoGradient: a gradient of zeros, as PyTorch has it, so what is trained before it decays
};

class GradientContext;
class ShardQuery;

// The elements that matrix units get: none, float32 rounded to TensorFloat-32, or 16-bit elements.
enum class MatrixWork : uint8_t { kNone, kTf32, kHalf };

// Bytes are those that a kernel must move at least; flops count a multiply-add as two.
struct Cost {
  double flops = 0;
  double bytes = 0;
  MatrixWork matrix = MatrixWork::kNone;
};

struct Op {
  std::string_view name;
  std::string_view domain;  // "" or kGradloomDomain
  int since_version = 1;    // the first opset with this row's meaning, which holds up to kOpset
  uint32_t traits = 0;

  // Appends the nodes that compute gradients of the inputs from those of the outputs. Null if there is none: with kNoGradient nothing
  // flows; without it, training through the operator is an error.
  void (*gradient)(GradientContext& context) = nullptr;

  // Types of the outputs; null: ONNX's schema decides. Returns one type per entry of node.outputs and throws Error(kShape, kType, kAttr,
  // kArity) if operands do not fit.
  std::vector<ValueType> (*infer)(const Graph& graph, const Node& node) = nullptr;

  // kRandom: the shape of the tensor for whose elements numbers are drawn, with samples along the axis of output 0. Null: output 0 itself.
  Shape (*drawn)(const Graph& graph, const Node& node) = nullptr;

  // Null: bytes of all operands, one flop per output element.
  Cost (*cost)(const Graph& graph, const Node& node) = nullptr;

  // The sharding rule: what becomes of operands that are divided over devices by samples (compiler/ops/sharding.h). `samples` states it for
  // an operator that treats each sample separately: a letter per input, '>', a letter per output; the last letter of each applies to all
  // that follow. A digit: the axis of the samples. '.': the same for all samples. '?': either of these, along axis 0. '+': a sum over
  // samples. 'l': a statistic of a device's samples. `shard` takes precedence. With neither, views and pointwise operators have a default
  // rule, and any other operator accepts nothing that is divided.
  std::string_view samples = {};
  void (*shard)(ShardQuery& query) = nullptr;

  bool has(Trait trait) const { return (traits & trait) != 0; }
};

// The row of an operator, or null if there is none. `domain` may also be "ai.onnx", ONNX's long name.
const Op* FindOp(std::string_view domain, std::string_view name);

// Whether output 0 has the elements of input 0 in the same row-major order (runtime/base/views.h).
bool KeepsElements(const Node& node);
// The same, or each element may be converted to another type or repeated along an axis (Cast, Expand).
bool ForwardsElements(const Node& node);

// Every row, family by family.
std::span<const Op* const> AllOps();

// The cost of a node by its row.
Cost CostOf(const Graph& graph, const Node& node);

// The arguments of a gradient function: the node, its operands, the gradients of its outputs, and a builder whose nodes belong to the
// backward phase.
class GradientContext {
 public:
  GradientContext(GraphBuilder& builder, const Node& node, std::vector<ValueId> output_gradients, std::vector<bool> needed)
      : b(builder),
        node_(node),
        output_gradients_(std::move(output_gradients)),
        needed_(std::move(needed)),
        input_gradients_(node.inputs.size(), kNoValue) {}

  GraphBuilder& b;

  // A copy, since appending to the graph invalidates references to its nodes.
  const Node& node() const { return node_; }
  const Attributes& attributes() const { return node_.attributes; }

  int num_inputs() const { return static_cast<int>(node_.inputs.size()); }
  int num_outputs() const { return static_cast<int>(node_.outputs.size()); }

  // Operand i, or kNoValue if it is absent or beyond the end.
  ValueId in(int i) const { return i < num_inputs() ? node_.inputs[static_cast<size_t>(i)] : kNoValue; }
  ValueId out(int i) const { return i < num_outputs() ? node_.outputs[static_cast<size_t>(i)] : kNoValue; }

  // The gradient of output i; kNoValue means zero. At least one output has one.
  ValueId grad(int i) const { return i < num_outputs() ? output_gradients_[static_cast<size_t>(i)] : kNoValue; }

  // Whether the gradient of input i is needed; computing others is wasted work.
  bool needs(int i) const { return i < num_inputs() && needed_[static_cast<size_t>(i)]; }

  // Sets the gradient of input i, with the input's shape and dtype. If it is not called, the gradient is zero.
  void set(int i, ValueId gradient) { input_gradients_[static_cast<size_t>(i)] = gradient; }

  // The same, after summing over broadcast dimensions.
  void set_reduced(int i, ValueId gradient) { set(i, b.ReduceTo(gradient, b.shape(in(i)))); }

  const std::vector<ValueId>& input_gradients() const { return input_gradients_; }

 private:
  Node node_;
  std::vector<ValueId> output_gradients_;
  std::vector<bool> needed_;
  std::vector<ValueId> input_gradients_;
};

}  // namespace gradloom
