// What the uses of an integer that depends on the batch size make of it.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/graph/graph.h"
#include "compiler/passes/devices/batch_dependence.h"

namespace gradloom {

// A file may use its batch size as an extent (the target of a Reshape) and as a number (a product with values of the data). Both are the
// same constant. A device has the extents of its own samples, but must compute with the number of the whole batch. An operand is an extent
// if the shape of the result follows from it.
class BatchNumbers {
 public:
  // The arguments must outlive the constructor only.
  BatchNumbers(const Graph& graph, const BatchDependence& dependence, const TypeRules& rules);

  // Whether every use of the constant is as a number, so that devices have the constant as it is.
  bool only_number(ValueId id) const { return numbers_.contains(id) && !extents_.contains(id); }

  // Of a node of a device's graph, at this position in the whole graph: gives operands that are numbers those of the whole batch.
  void KeepNumbers(GraphBuilder& device, size_t at, Node& node) const;

 private:
  std::map<ValueId, Tensor> numbers_;                    // constants that some node uses as a number: their elements for the whole batch
  std::set<ValueId> extents_;                            // constants that some node uses as an extent
  std::map<size_t, std::set<ValueId>> used_as_numbers_;  // by position of the node
};

}  // namespace gradloom
