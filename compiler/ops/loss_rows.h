// Converts class scores [N, C, d1, ...] to the rows [M, C] on which our losses work.
#pragma once

#include "compiler/graph/builder.h"
#include "runtime/base/ignored_class.h"

namespace gradloom {

// Moves `axis` (in [0, rank)) last and flattens the others into rows.
ValueId FlattenClasses(GraphBuilder& b, ValueId scores, int axis);

// The operands of gradloom.CrossEntropy and gradloom.Nll.
struct LossRows {
  ValueId scores = kNoValue;        // [M, C]
  ValueId target = kNoValue;        // int64[M]
  ValueId class_weight = kNoValue;  // [C], optional
  int64_t ignore_index = kIgnoredClass;
  int axis = 1;  // the axis of the classes in the original shape

  // Converts a gradient of the rows to the type and shape of the original scores.
  ValueId Restore(GraphBuilder& b, ValueId gradient, const ValueType& type) const;
};

// The operands of an ONNX SoftmaxCrossEntropyLoss or NegativeLogLikelihoodLoss, flattened, in at least 32 bits.
LossRows RowsOfOnnxLoss(GraphBuilder& b, const Node& node);

}  // namespace gradloom
