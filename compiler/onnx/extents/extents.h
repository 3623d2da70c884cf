// Extents that depend on the data of a step: the results of NonZero, Compress, Unique and NonMaxSuppression on data that is not known at
// import.
//
// The shape of such a value contains the largest possible extent (its bound). A scalar of the graph has the number of valid elements along
// that axis. The valid elements come first. The rest is padding: arbitrary numbers, usually copies of the first element, so that results
// computed from them are finite if those of the first element are. Each operator is written so that the valid part of its result depends
// only on the valid parts of its operands. An operator that mixes elements along such an axis gets zeros (or another neutral element)
// instead of padding, and one whose derivative may be infinite a number where it is finite, since padding's gradient of 0 times infinity
// would be NaN. So the graph remains static, and gradients, memory planning and the proof need no special handling. Private to this
// directory.
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

// An integer that may depend on the data of a step: factor x the product of scalars of the graph.
struct Size {
  int64_t factor = 0;
  std::vector<ValueId> scalars = {};  // int64 of rank 0, in ascending order; empty: the number is `factor`

  bool known() const { return scalars.empty(); }
  bool operator==(const Size&) const = default;
  auto operator<=>(const Size&) const = default;
};

// The extents that are not known at import, by axis.
using Axes = std::map<int, Size>;

class DataExtents {
 public:
  explicit DataExtents(Emitter& emitter) : emitter_(emitter) {}

  // Whether this class must expand the node: an operand has an extent that is not known, or is such a number itself, or the node produces
  // one.
  bool MustExpand(const Node& node) const;

  // Adds nodes that compute the node, like Emitter::Emit. Throws Error(kUnsupported) with the node, the operand and the axis if the
  // operator is not supported over such an axis.
  std::vector<ValueId> Emit(Node node, const std::vector<std::string>& names);

  // The unknown extents of a value.
  const Axes& Of(ValueId id) const;
  Size ExtentOf(ValueId id, int axis) const;
  // The scalars with the numbers of valid elements of a value, by axis. Adds nodes for those that are products.
  std::vector<std::pair<int, ValueId>> ScalarsOf(ValueId id);
  // The number as a value: int64, rank 0. `origin` is that of the nodes added for it.
  ValueId ScalarOf(const Size& size, const std::string& origin);
  // The largest possible number.
  int64_t Bound(const Size& size) const;
  // A number that it is never below: 0 for an extent, but differences of extents may be negative.
  int64_t Least(const Size& size) const;
  // The number, or 0 if it is negative.
  Size NotNegative(const Size& size, const std::string& origin);
  // The elements of a small integer vector; nullopt if one is not known at all.
  std::optional<std::vector<Size>> Numbers(ValueId id);

  // For nodes with bodies, whose results are not produced by a rule.

  // The number that this scalar of the graph has, which is from `least` to `bound`.
  Size Counted(ValueId scalar, int64_t bound, int64_t least = 0);
  void Declare(ValueId id, int axis, const Size& size);
  void DeclareNumbers(ValueId id, std::vector<Size> numbers);
  // Transfers what is known about the value `id` of the enclosing graph to the value `inner` that stands for it in a body; `capture`
  // returns the value in the body for a scalar.
  void Inherit(const DataExtents& outer, ValueId id, ValueId inner, const std::function<ValueId(ValueId)>& capture);
  void InheritAxes(const DataExtents& outer, ValueId id, ValueId inner, const std::function<ValueId(ValueId)>& capture);
  // The value, padded to these extents.
  ValueId PaddedTo(ValueId id, const Shape& bounds, const std::string& origin);
  // Element i of an integer vector, as an int64 scalar.
  ValueId ElementOf(ValueId id, int64_t i, const std::string& origin);

 private:
  friend class ExtentNode;

  const std::vector<Size>* NumbersOf(ValueId id) const;
  // A number of the enclosing graph, as a number of this body.
  Size Inherited(const DataExtents& outer, const Size& size, const std::function<ValueId(ValueId)>& capture);
  bool IsSource(const Node& node) const;

  Emitter& emitter_;
  std::map<ValueId, Axes> axes_;
  // The elements of integer vectors and scalars that contain such a number.
  std::map<ValueId, std::vector<Size>> numbers_;
  std::map<ValueId, int64_t> bounds_;                     // of scalars: the largest possible value
  std::map<ValueId, int64_t> least_;                      // of scalars that may be negative: the least possible value
  std::map<Size, ValueId> products_;                      // the scalars created for Sizes
  std::map<std::pair<ValueId, int64_t>, ValueId> masks_;  // bool[bound]: the positions below the scalar
  std::map<ValueId, std::pair<ValueId, Size>> places_;    // of conditions: the positions where they are true, and their number
};

}  // namespace gradloom
