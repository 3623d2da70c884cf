// The compiler's program: a pure graph of operators over tensors with known shapes.
//
// Pure means that no node writes what another reads: there are no views and nothing happens in place. An updated parameter is a new value
// marked `next_of` the old one; only plan_memory decides that both may share bytes. Every stage of a graph is ONNX at opset kOpset:
// standard operators keep their ONNX meaning, our own are in the domain "gradloom".
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/attributes.h"
#include "runtime/base/dtype.h"
#include "runtime/base/shape.h"
#include "runtime/base/tensor.h"

namespace gradloom {

// Standard operators in a Graph have the meaning of this opset of the default ONNX domain.
inline constexpr int kOpset = 28;
// The domain of our own operators: gradients that are not compositions, fused kernels, optimizers.
inline constexpr std::string_view kGradloomDomain = "gradloom";

using ValueId = int32_t;
using NodeId = int32_t;
// An absent optional operand.
inline constexpr ValueId kNoValue = -1;

enum class Role : uint8_t {
  kInput,       // fed at each step: model inputs, targets, and step parameters such as the learning rate
  kParam,       // trained: an initializer with a next value
  kConst,       // known at compile time; has data
  kActivation,  // computed
  kGradient,    // computed by the backward phase
  kState,       // kept between steps, but not a parameter: optimizer state, running statistics, accumulators
};

struct Value {
  ValueId id = kNoValue;
  std::string name;  // unique in its graph; for parameters and constants the ONNX initializer's name
  DType dtype = DType::kUndefined;
  Shape shape;
  Role role = Role::kActivation;
  ValueId next_of = kNoValue;      // this value replaces that parameter or state after the step
  ValueId rounded_of = kNoValue;   // this state is that parameter, rounded to 16 bits; the parameter's update keeps it so
  ValueId optimizes = kNoValue;    // this state is one of the optimizer's for that parameter
  ValueId accumulates = kNoValue;  // this state is the sum of that parameter's gradients
  ValueId averages = kNoValue;     // this state is the moving average of that parameter's values
  bool averaged = false;           // this parameter is read as its moving average, which another entry updates
  bool derived = false;            // a constant that was computed, not a tensor of the file, so it is not trained
  // Each device that shares the batch has its own part of it, and the value is their sum: an accumulated gradient, as a state or with the
  // last batch's share.
  bool partial = false;

  // In row-major order, without padding.
  int64_t bytes() const { return shape.elements() * DTypeBytes(dtype); }
};

// The part of a step that a node belongs to, in the order of the data: a node reads nothing of a later phase. What is communicated belongs
// to the phase that made it. kCopy: copies an input before the step, while the previous step runs.
enum class Phase : uint8_t { kForward, kBackward, kUpdate, kCopy };

class Graph;

// A body of a branch or a loop (compiler/ops/control_flow.cc). It sees only its own inputs, which are the node's operands.
struct Region {
  std::string attribute;  // "then_branch", "body" ...
  std::shared_ptr<Graph> body;
};

struct Node {
  NodeId id = -1;
  std::string op;
  std::string domain;            // "" is ONNX's own
  std::vector<ValueId> inputs;   // kNoValue for an absent optional input
  std::vector<ValueId> outputs;  // kNoValue for an optional output that is not needed
  Attributes attributes;
  std::vector<Region> regions;
  Phase phase = Phase::kForward;
  int device = -1;       // set by place_model and place_devices
  int micro_batch = -1;  // of a pipeline; -1: none, or several. Set by micro_batches
  std::string origin;    // the ONNX node that this comes from, with its call path; for messages and random keys
};

// The dtype and shape of a value.
struct ValueType {
  DType dtype = DType::kUndefined;
  Shape shape;
  bool operator==(const ValueType&) const = default;
  int64_t bytes() const { return shape.elements() * DTypeBytes(dtype); }
  std::string ToString() const { return std::string(DTypeName(dtype)) + shape.ToString(); }
};

class Graph {
 public:
  std::string name;
  std::vector<ValueId> inputs;   // values of role kInput, in feeding order
  std::vector<ValueId> outputs;  // values that the caller may fetch
  std::vector<Node> nodes;       // in an order in which they can run

  // Adds a value with this name, made unique by a suffix if it is taken, and returns its id.
  ValueId AddValue(std::string name, DType dtype, Shape shape, Role role);

  // Adds a constant (or parameter, state) with its bytes.
  ValueId AddData(std::string name, Tensor data, Role role);

  // Appends a node; its id is set. Outputs must be values of this graph without another producer.
  Node& AddNode(Node node);

  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  Value& value(ValueId id) { return values_[static_cast<size_t>(id)]; }
  int num_values() const { return static_cast<int>(values_.size()); }
  const std::vector<Value>& values() const { return values_; }
  ValueType type(ValueId id) const { return {value(id).dtype, value(id).shape}; }

  // The value of this name, or kNoValue.
  ValueId Find(std::string_view name) const;

  // The bytes of a constant, or the initial bytes of a parameter or state; null if there are none.
  const Tensor* data(ValueId id) const;
  void set_data(ValueId id, Tensor data) { data_.insert_or_assign(id, std::move(data)); }
  void drop_data(ValueId id) { data_.erase(id); }

  // A copy that shares the bytes of tensors but not regions.
  std::unique_ptr<Graph> Clone() const;

  NodeId next_node_id() const { return next_node_id_; }

 private:
  std::vector<Value> values_;
  std::map<ValueId, Tensor> data_;
  std::map<std::string, ValueId, std::less<>> by_name_;
  NodeId next_node_id_ = 0;
};

// Calls `f` for every value that the node reads, except absent ones.
void ForEachUse(const Node& node, const std::function<void(ValueId)>& f);

// The producer and the readers of each value, as positions in graph.nodes. Invalid once the nodes change.
struct Uses {
  explicit Uses(const Graph& graph);

  // The position of the node that makes a value; -1 for an input, constant, parameter or state, and for kNoValue.
  int ProducerOf(ValueId id) const { return id == kNoValue ? -1 : producer[static_cast<size_t>(id)]; }
  // The node itself, of the graph that was given; null if there is none.
  const Node* ProducingNode(const Graph& graph, ValueId id) const {
    const int at = ProducerOf(id);
    return at < 0 ? nullptr : &graph.nodes[static_cast<size_t>(at)];
  }

  std::vector<int> producer;                // by value; -1: none
  std::vector<std::vector<int>> consumers;  // each reading node once
};

// "Conv '/layer1/conv1'": a node for a message.
std::string Describe(const Node& node);

}  // namespace gradloom
