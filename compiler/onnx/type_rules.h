// Type inference for nodes, with the ONNX schemas and the rows of compiler/ops.
#pragma once

#include <vector>

#include "compiler/graph/builder.h"

namespace gradloom {

// A rule in the operator's row has priority. Otherwise ONNX's schema of opset kOpset is used, which sees the data of constant inputs
// (targets of Reshape, axes ...). In both cases, standard operators are checked against their schema. All shapes of the result must be
// known. Errors contain the node: E-ARITY, E-ATTR and E-TYPE if the node contradicts its schema, E-SHAPE if the operands do not match,
// E-UNSUPPORTED for an unknown operator and for a shape that depends on data. It has no state: one object can be used for any number of
// graphs and threads.
class OnnxTypeRules : public TypeRules {
 public:
  std::vector<ValueType> Infer(const Graph& graph, const Node& node) const override;
};

}  // namespace gradloom
