// Extents that the data of a step decides: NonZero, Compress, Unique and NonMaxSuppression over data that is not known at import.
//
// A value with such an extent has the largest one that there can be (its bound) in its shape, and beside it a scalar of the graph says how
// many of the elements along that axis count. They come first; what lies past them is padding: any numbers, as a rule copies of the
// first element, so that what is computed of them is finite where the first is. Each operator is written so that what counts in its
// result hangs on what counts in its operands alone: one that mixes elements along such an axis gets zeros (or what else changes
// nothing) in place of padding. So a graph is static all the same, and gradients, memory and the proof need to know nothing of this.
// Private to this directory.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/graph.h"

namespace gradloom {

class Emitter;

// A whole number that the data of a step may decide: factor x the product of scalars of the graph.
struct Size {
  int64_t factor = 0;
  std::vector<ValueId> scalars = {};  // int64 of rank 0, ascending; none: the number is `factor`

  bool known() const { return scalars.empty(); }
  bool operator==(const Size&) const = default;
  auto operator<=>(const Size&) const = default;
};

// By axis, of those extents alone that are not known.
using Axes = std::map<int, Size>;

class DataExtents {
 public:
  explicit DataExtents(Emitter& emitter) : emitter_(emitter) {}

  // Whether the node is written here: an operand has an extent that is not known, or is such a number, or the node makes one.
  bool Concerns(const Node& node) const;

  // Adds what computes the node; as Emitter::Emit. Throws Error(kUnsupported) for an operator that is not taken over such an axis, naming
  // the node, the operand and the axis.
  std::vector<ValueId> Emit(Node node, const std::vector<std::string>& names);

  // Of a value.
  const Axes& Of(ValueId id) const;
  Size ExtentOf(ValueId id, int axis) const;
  // Scalars that say what counts of a value, by axis; makes them where they are products.
  std::vector<std::pair<int, ValueId>> ScalarsOf(ValueId id);
  // int64, rank 0. `origin`: of the nodes that are added for it.
  ValueId ScalarOf(const Size& size, const std::string& origin);
  // The most that it can be.
  int64_t Bound(const Size& size) const;
  // What is known of each element of a small integer vector; nothing where one is not known at all.
  std::optional<std::vector<Size>> Numbers(ValueId id);

  // For nodes with bodies, whose results are not written by a rule.
  // A number that this scalar of the graph says.
  Size Counted(ValueId scalar, int64_t bound);
  void Declare(ValueId id, int axis, const Size& size);
  void DeclareNumbers(ValueId id, std::vector<Size> numbers);
  // Says of what stands for a value of the graph around a body what is known of that value; `capture` gives what stands for a scalar.
  void Inherit(const DataExtents& outer, ValueId id, ValueId inner, const std::function<ValueId(ValueId)>& capture);
  void InheritAxes(const DataExtents& outer, ValueId id, ValueId inner, const std::function<ValueId(ValueId)>& capture);
  // The value with room for these extents.
  ValueId PaddedTo(ValueId id, const Shape& bounds, const std::string& origin);
  // Element i of integers, as an int64 scalar.
  ValueId ElementOf(ValueId id, int64_t i, const std::string& origin);

 private:
  friend class ExtentNode;

  const std::vector<Size>* NumbersOf(ValueId id) const;
  // A number of the graph around this body.
  Size Inherited(const DataExtents& outer, const Size& size, const std::function<ValueId(ValueId)>& capture);
  bool IsSource(const Node& node) const;

  Emitter& emitter_;
  std::map<ValueId, Axes> axes_;
  // What is known of the elements of integer vectors and scalars that have such a number among them.
  std::map<ValueId, std::vector<Size>> numbers_;
  std::map<ValueId, int64_t> bounds_;                     // of scalars: the most they can be
  std::map<Size, ValueId> products_;                      // scalars that were made of Sizes
  std::map<std::pair<ValueId, int64_t>, ValueId> masks_;  // bool[bound]: which places are below the scalar
  std::map<ValueId, std::pair<ValueId, Size>> places_;    // of conditions: where they hold, and how often
};

}  // namespace gradloom
