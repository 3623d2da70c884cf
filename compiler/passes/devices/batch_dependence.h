// How a graph depends on its batch size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compiler/graph/graph.h"
#include "runtime/base/error.h"

namespace gradloom {

// Thrown if the graphs have different nodes at the two sizes, or a node has different operands. Another size may simplify in the same way
// as the first.
class GraphMismatch : public Error {
 public:
  using Error::Error;
};

// Every shape in a graph is a number. To find which numbers depend on the batch, this compares the graphs of one model at two batch sizes.
// Extents, attributes and integer constants that differ are assumed to be linear in the size. A floating-point constant that differs is a
// number of the whole batch, such as one over its number of samples; an integer may be either (batch_numbers.h).
class BatchDependence {
 public:
  // Both graphs must outlive this. `other`: the same model at another batch size. Throws GraphMismatch(kUnsupported) naming the first node
  // that only one of them has.
  BatchDependence(const Graph& graph, int64_t batch, const Graph& other, int64_t other_batch);

  // The axes of the value that grow with the batch: two in a table of all pairs of samples.
  std::vector<int> growing_axes(ValueId id) const;
  // The axis of the value that grows with the batch, or -1. Throws Error(kUnsupported) if there are two.
  int growing(ValueId id) const;

  // The value's shape, along the first axis that grows, the attributes of the node at this position, and a constant, at another batch size.
  // Throws Error(kUnsupported) if that is not an integer, or if a constant has different elements for different samples.
  Shape ShapeAt(ValueId id, int64_t batch) const;
  Attributes AttributesAt(size_t node, int64_t batch) const;
  // For a constant that grows: the number of positions along that axis that belong to a sample and repeat for the next one. 0: all
  // positions are alike. -1: samples have different elements.
  int64_t PositionsPerSample(ValueId id) const;
  // For a constant that grows: by how much elements increase from each sample to the next, per position along the last axis or one number
  // for all; empty: they do not count samples.
  std::vector<int64_t> StepsOf(ValueId id) const;
  // With `counted`, a constant that counts samples has the numbers of the first samples.
  Tensor ConstantAt(ValueId id, int64_t batch, bool counted = false) const;

  // The elements at the other batch size of a constant of integers that differ, but not in number; otherwise null.
  const Tensor* OtherNumber(ValueId id) const;

  // The same for a body of the node at this position.
  const BatchDependence& body(size_t node, size_t region) const { return bodies_[node][region]; }

 private:
  void Match(ValueId id, ValueId other, const Node& node);
  int64_t At(int64_t here, int64_t there, int64_t batch, const std::string& what) const;

  const Graph& graph_;
  const Graph& other_;
  int64_t batch_, other_batch_;
  std::vector<std::vector<BatchDependence>> bodies_;  // by node and region
  std::vector<ValueId> other_of_;                     // by value id: the same value in the other graph; kNoValue if nothing uses it
};

}  // namespace gradloom
