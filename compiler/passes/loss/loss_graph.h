// A loss that is a graph of its own, such as an ONNX file.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/passes/loss/loss_operands.h"

namespace gradloom {

class LossGraph {
 public:
  virtual ~LossGraph() = default;

  // The file's name, for messages, and a hash of its content.
  virtual const std::string& name() const = 0;
  virtual const std::string& hash() const = 0;

  // The names of its inputs, in order.
  virtual std::vector<std::string> inputs() const = 0;

  // The shape of an input. `counts`: the scalars of the model's graph that say how many elements along an axis are valid.
  struct Input {
    Shape shape;
    std::map<int, ValueId> counts = {};
  };
  struct Instance {
    std::unique_ptr<Graph> graph;
    std::map<ValueId, ValueId> counts = {};  // inputs of the graph that are such scalars
  };

  // The graph for these inputs; the shapes of other inputs follow from its own declarations. `batch`: of the model, 0 if it has none.
  // Throws Error of any class that names a wrong node or input.
  virtual Instance For(const std::map<std::string, Input>& known, int64_t batch) const = 0;
};

// Appends the graph's nodes and returns its only output, a scalar of rank 0. An input is the value that `bindings` gives, or the value of
// its own name: an output of the model, an input of the model, or else a target. Initializers are constants. Names and origins begin with
// "loss/". Throws Error(kConfig) for bindings of inputs that do not exist, for a graph that reads no output of the model, and for a target
// whose name is similar to an output that it does not read. Throws Error(kShape, kType) for operands that do not fit and an output that is
// not a scalar, and what For throws, naming the file.
ValueId AddLossGraph(GraphBuilder& builder, const LossGraph& loss, const std::map<std::string, std::string>& bindings, int64_t batch,
                     LossOperands& operands);

}  // namespace gradloom
