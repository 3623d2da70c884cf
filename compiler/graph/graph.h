// The compiler's program: a pure graph of operators over tensors with known shapes.
//
// Pure means that no node writes what another reads: there are no views and nothing is done in place. An
// update of a parameter is a new value marked `next_of` the old one; that both may share bytes is decided
// by plan_memory alone. Every stage of a graph is ONNX at opset kOpset: standard operators keep their
// ONNX meaning, ours live in the domain "gradloom".
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
// The domain of operators of our own: gradients that are no composition, fused kernels, optimizers.
inline constexpr std::string_view kGradloomDomain = "gradloom";

using ValueId = int32_t;
using NodeId = int32_t;
// An optional operand that is not there.
inline constexpr ValueId kNoValue = -1;

enum class Role : uint8_t {
  kInput,       // fed at each step: model inputs, targets, and step parameters such as the learning rate
  kParam,       // trained: an initializer with a next value
  kConst,       // known at compile time; has data
  kActivation,  // computed
  kGradient,    // computed by the backward phase
  kState,       // kept between steps and no parameter: optimizer state, running statistics, accumulators
};

struct Value {
  ValueId id = kNoValue;
  std::string name;  // unique in its graph; for parameters and constants the ONNX initializer's name
  DType dtype = DType::kUndefined;
  Shape shape;
  Role role = Role::kActivation;
  ValueId next_of = kNoValue;  // this value replaces that parameter or state after the step
  bool derived = false;        // a constant that was computed: no tensor of the file, so nothing to train
  bool partial = false;        // a state of which each device that shares the batch has a part: it is the sum of those
};

// kCopy: an input that is copied before the step, while the one before it runs.
enum class Phase : uint8_t { kForward, kBackward, kUpdate, kComm, kCopy };

class Graph;

// A body of a branch or a loop (compiler/ops/control_flow.cc). It sees its own inputs alone, which the node's operands are.
struct Region {
  std::string attribute;  // "then_branch", "body" ...
  std::shared_ptr<Graph> body;
};

struct Node {
  NodeId id = -1;
  std::string op;
  std::string domain;            // "" is ONNX's own
  std::vector<ValueId> inputs;   // kNoValue where an optional input is absent
  std::vector<ValueId> outputs;  // kNoValue where an optional output is not wanted
  Attributes attributes;
  std::vector<Region> regions;
  Phase phase = Phase::kForward;
  int device = -1;     // set by place_devices
  int stream = -1;     // set by assign_streams
  std::string origin;  // the ONNX node this comes from, with its call path; for messages and random keys
};

// The dtype and shape of a value.
struct ValueType {
  DType dtype = DType::kUndefined;
  Shape shape;
  bool operator==(const ValueType&) const = default;
  std::string ToString() const { return std::string(DTypeName(dtype)) + shape.ToString(); }
};

class Graph {
 public:
  std::string name;
  std::vector<ValueId> inputs;   // values of role kInput, in feeding order
  std::vector<ValueId> outputs;  // what the caller may fetch
  std::vector<Node> nodes;       // in an order in which they can run

  // Adds a value with this name, made unique by a suffix where it is taken, and returns its id.
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

  // The bytes of a constant, or the initial ones of a parameter or state; null where there are none.
  const Tensor* data(ValueId id) const;
  void set_data(ValueId id, Tensor data) { data_.insert_or_assign(id, std::move(data)); }
  void drop_data(ValueId id) { data_.erase(id); }

  // A copy that shares tensor bytes but no region.
  std::unique_ptr<Graph> Clone() const;

  NodeId next_node_id() const { return next_node_id_; }

 private:
  std::vector<Value> values_;
  std::map<ValueId, Tensor> data_;
  std::map<std::string, ValueId, std::less<>> by_name_;
  NodeId next_node_id_ = 0;
};

// Calls `f` on every value that the node reads, absent ones left out.
void ForEachUse(const Node& node, const std::function<void(ValueId)>& f);

// Who makes and who reads each value, by positions in graph.nodes. Stale once the nodes change.
struct Uses {
  explicit Uses(const Graph& graph);
  std::vector<int> producer;                // -1: an input, constant, parameter or state
  std::vector<std::vector<int>> consumers;  // each reading node once
};

// "Conv '/layer1/conv1'": a node for a message.
std::string Describe(const Node& node);

}  // namespace gradloom
