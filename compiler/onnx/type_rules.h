// Types of nodes over the ONNX schemas and the rows of compiler/ops.
#pragma once

#include <vector>

#include "compiler/graph/builder.h"

namespace gradloom {

// A rule in the operator's row comes first; otherwise ONNX's schema of opset kOpset decides, which sees the data
// of constant inputs (targets of Reshape, axes ...). Standard operators are checked against their schema in
// either case. Every shape must come out known. Errors, each naming the node: E-ARITY, E-ATTR and E-TYPE where the
// node contradicts its schema, E-SHAPE where the operands do not fit, E-UNSUPPORTED for an unknown operator and for
// a shape that depends on data. Has no state: one object serves any number of graphs and threads.
class OnnxTypeRules : public TypeRules {
 public:
  std::vector<ValueType> Infer(const Graph& graph, const Node& node) const override;
};

}  // namespace gradloom
