// How a graph depends on the size of its batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compiler/graph/graph.h"
#include "runtime/base/error.h"

namespace gradloom {

// The graphs have other nodes at the two sizes, or a node other operands: another size may simplify in the same way.
class OtherForm : public Error {
 public:
  using Error::Error;
};

// Every shape in a graph is a number. What of it is the batch shows when the same model is made into a graph at two sizes:
// extents, attributes and integer constants that differ are taken to be linear in the size; a floating constant that differs is
// a number of the whole batch, such as one over its samples.
class BatchDependence {
 public:
  // Both graphs must outlive this; `other` is the same model at another batch. Throws OtherForm(kUnsupported) naming the first node
  // that only one of them has.
  BatchDependence(const Graph& graph, int64_t batch, const Graph& other, int64_t other_batch);

  // The axis of the value that grows with the batch, or -1. Throws Error(kUnsupported) where there are two.
  int growing(ValueId id) const;

  // What the value's shape, the attributes of the node at this position and a constant are at another size. Throws
  // Error(kUnsupported) where that is no whole number, or where a constant has other elements for other samples.
  Shape ShapeAt(ValueId id, int64_t batch) const;
  Attributes AttributesAt(size_t node, int64_t batch) const;
  // Of a constant that grows: how many places along that axis a sample has, which the next one repeats; 0: all places are alike; -1:
  // samples have other elements.
  int64_t PlacesOfSample(ValueId id) const;
  // Of a constant that grows: by place along its last axis, or one for all, what elements are more for each sample than for the one before;
  // empty: they do not count samples.
  std::vector<int64_t> StepsOf(ValueId id) const;
  // With `counted` one that counts samples has the numbers of the first ones.
  Tensor ConstantAt(ValueId id, int64_t batch, bool counted = false) const;

  // The same of a body of the node at this position.
  const BatchDependence& body(size_t node, size_t region) const { return bodies_[node][region]; }

 private:
  void Match(ValueId id, ValueId other, const Node& node);
  int64_t At(int64_t here, int64_t there, int64_t batch, const std::string& what) const;

  const Graph& graph_;
  const Graph& other_;
  int64_t batch_, other_batch_;
  std::vector<std::vector<BatchDependence>> bodies_;  // by node and region
  std::vector<ValueId> other_of_;                     // by value id: the same value of the other graph; kNoValue where nothing uses it
};

}  // namespace gradloom
