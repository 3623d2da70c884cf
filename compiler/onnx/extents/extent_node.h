// Helpers with which the rules of compiler/onnx/extents/extents.h expand a node. Private to compiler/onnx.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/onnx/emitter.h"
#include "compiler/onnx/extents/extents.h"

namespace gradloom {

// A node with an operand of unknown extent, and its expansion.
class ExtentNode {
 public:
  ExtentNode(DataExtents& extents, Node node, const std::vector<std::string>& names)
      : extents_(extents), emitter_(extents.emitter_), node_(std::move(node)), names_(names), results_(names.size(), kNoValue) {}

  // Expands the node by the rule of its operator.
  std::vector<ValueId> Run();

  // Like the functions of DataExtents.
  ValueId ScalarOf(const Size& size);
  std::optional<std::vector<Size>> Numbers(ValueId id) const;
  ValueId PaddedTo(ValueId id, const Shape& bounds);
  ValueId ElementOf(ValueId id, int64_t i);
  Size NotNegative(const Size& size);

 private:
  using Rule = void (ExtentNode::*)();
  static Rule RuleOf(const Node& node);

  // The node's operands.
  size_t num_inputs() const { return node_.inputs.size(); }
  ValueId in(size_t i) const { return i < node_.inputs.size() ? node_.inputs[i] : kNoValue; }
  Shape shape(ValueId id) const { return emitter_.graph().value(id).shape; }
  int rank(ValueId id) const { return shape(id).rank(); }
  DType dtype(ValueId id) const { return emitter_.graph().value(id).dtype; }
  // A copy, because adding nodes changes the maps.
  Axes axes(ValueId id) const { return id == kNoValue ? Axes{} : extents_.Of(id); }
  int64_t Attr(const std::string& name, int64_t absent) const { return node_.attributes.Int(name, absent); }
  // Converts an axis attribute or operand to the range [0, rank).
  int Axis(int64_t axis, int rank) const;
  // The elements of an integer operand, empty if it is absent. Throws kUnsupported if they are not known.
  std::vector<int64_t> KnownInts(size_t i) const;
  // The same for an operand whose elements may be extents.
  std::vector<Size> Sizes(size_t i) const;
  // The only one of them. Throws kShape if there are more or fewer.
  Size OneSize(size_t i) const;

  // Throws Error(kUnsupported): this operator is not supported over such an axis of operand i.
  [[noreturn]] void Refuse(size_t i, int axis, const std::string& why = "") const;
  // Throws Error(kShape) if operand i is present and has another rank. Operands whose extents are all known are left to the type rules.
  void ExpectRank(size_t i, int least, int most) const;
  void ExpectRank(size_t i, int rank) const { ExpectRank(i, rank, rank); }
  // Refuses every unknown extent of operand i except along the axes in `may`.
  void Only(size_t i, const std::vector<int>& may = {}) const;

  // Adding nodes.
  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {});
  std::vector<ValueId> Ops(const std::string& op, std::string_view domain, std::vector<ValueId> inputs, size_t outputs,
                           Attributes attributes = {});
  // Adds the last node, whose outputs get the names of the node's outputs.
  ValueId Last(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {});
  // Adds the node itself with other operands.
  void Same(std::vector<ValueId> inputs);
  void Same() { Same(node_.inputs); }
  // The same, but the padding of the first result along one axis, or none, becomes `fill`, from which operators compute finite gradients.
  void SameWithPadding(std::vector<ValueId> inputs, const Axes& along, double fill);
  void SetAxes(size_t output, const Axes& axes);
  ValueId Ints(const std::vector<int64_t>& values);
  ValueId Int(int64_t value);
  // 0, step, 2 * step ...: [count] of this type.
  ValueId Arange(int64_t count, int64_t step = 1, DType dtype = DType::kInt64);
  ValueId Scalar(double value, DType dtype);
  ValueId Add(ValueId a, ValueId b) { return Op("Add", {a, b}); }
  ValueId Sub(ValueId a, ValueId b) { return Op("Sub", {a, b}); }
  ValueId Mul(ValueId a, ValueId b) { return Op("Mul", {a, b}); }
  ValueId Reshaped(ValueId a, const std::vector<int64_t>& dims) { return Op("Reshape", {a, Ints(dims)}); }

  // Numbers.
  int64_t Bound(const Size& size) const { return extents_.Bound(size); }
  int64_t Least(const Size& size) const { return extents_.Least(size); }
  Size NewSize(ValueId scalar, int64_t bound, int64_t least = 0) { return extents_.Counted(scalar, bound, least); }
  Size Times(const Size& a, const Size& b) const;
  Size Sum(const Size& a, const Size& b);
  // a / b if b is a factor of a; otherwise nullopt.
  static std::optional<Size> Quotient(const Size& a, const Size& b);
  // The extent of an axis: unknown or known.
  Size ExtentOf(ValueId id, int axis) const { return extents_.ExtentOf(id, axis); }
  bool RunNumbers();
  std::optional<std::vector<Size>> MovedNumbers();
  std::vector<Size> Reduced(const std::vector<Size>& elements);
  std::vector<Size> Arithmetic(const std::vector<std::vector<Size>>& operands, ValueId result);

  // Padding.
  // Returns a bool of `rank` dimensions that is true for valid positions along the axis; all other dimensions are 1.
  ValueId Mask(const Size& size, int64_t bound, int axis, int rank);
  // Returns the value with `fill` in place of padding along these axes.
  ValueId Masked(ValueId id, const Axes& along, double fill);
  ValueId MaskedAll(ValueId id, double fill) { return Masked(id, axes(id), fill); }
  // Returns a bool that broadcasts to `shape`: which elements are valid; kNoValue if all are.
  ValueId Counts(const Axes& along, const Shape& shape);
  // Returns the unknown axes of a value that are among `wanted`.
  Axes AxesAmong(ValueId id, const std::vector<int>& wanted) const;
  double Lowest(DType dtype) const;
  double Highest(DType dtype) const;
  // The same for elements that are only compared: infinite if the type has such numbers, so that no valid element loses to padding.
  double BelowAll(DType dtype) const;
  double AboveAll(DType dtype) const;
  // Returns indices whose padding is in range: valid indices are unchanged, padding is clamped to [-extents, extents).
  ValueId ClampedIndices(ValueId indices, const std::vector<int64_t>& extents);
  // Converts negative indices, which count from the end of the valid part, to non-negative ones.
  ValueId NonNegativeIndices(ValueId indices, const Size& extent);

  // Axes of results.
  void Merge(Axes& into, int axis, const Size& size, int64_t bound, int64_t into_bound);
  Axes Broadcast(const std::vector<ValueId>& ids, int rank);
  // Returns the first `bound` elements along an axis, whose extent does not exceed that.
  ValueId Cut(ValueId id, int axis, int64_t bound);
  // Cuts operands that are broadcast to `rank` axes, except the last `own` ones of each, to the smallest bound of an axis, where they
  // differ.
  std::vector<ValueId> WithEqualBounds(std::vector<ValueId> ids, int rank, int own = 0);

  // Rules (extent_moves.cc).
  void Pointwise();
  // The operands, with a harmless number in place of padding where the operator is singular.
  std::vector<ValueId> RegularOperands();
  void Transpose();
  void Squeeze();
  void Unsqueeze();
  void Reshape();
  void Flatten();
  void ReshapeTo(std::vector<Size> target);
  void CloseTarget(std::vector<Size>& target);
  // Splits sizes at the unknown ones: the valid number and the bound of each part, which is an unknown size times the known ones up to the
  // next.
  std::vector<std::pair<Size, int64_t>> PartsAtUnknown(const std::vector<Size>& sizes, const std::vector<int64_t>& bounds) const;
  void Expand();
  void ConstantOfShape();
  void Range();
  void Concat();
  void Pad();
  void OneHot();
  void ShapeOf();
  void SizeOf();
  // (extent_parts.cc)
  void Split();
  std::vector<Size> PartsOf(const Size& extent, size_t count);
  void Tile();
  // (extent_layers.cc)
  void BatchNormalization();
  void Recurrent();
  void Attention();
  void RegionsOfInterest();
  // Returns the extent that two operands must have in common.
  Size SameSize(size_t i, int axis, size_t k, int other);
  // (extent_index.cc)
  void Slice();
  Size PositionIn(const Size& extent, ValueId places, size_t i);
  ValueId SliceAxis(ValueId data, int axis, Size& extent, const Size& start, const Size& end, int64_t step);
  void Gather();
  void GatherElements();
  int TupleOf(ValueId data, ValueId indices, int64_t batches) const;
  void GatherNd();
  void ScatterNd();
  void ScatterElements();
  // Emits the scatter with one extra slice along the axis. Padding is scattered to that slice, at index `extent`, and it is cut off
  // afterwards.
  void ScatterWithPaddingSlice(ValueId data, ValueId places, int axis, int64_t extent);
  // (extent_mixes.cc)
  void Reduce();
  void ArgExtreme();
  void Softmax();
  void CumSum();
  void TopK();
  void MatMul();
  void Gemm();
  void Einsum();
  void RowNormalization();
  void FirstAxisFree();
  void ClassLoss();
  // (extent_sources.cc)
  void NonZero();
  void Compress();
  void Unique();
  void NonMaxSuppression();
  // Returns the positions where a condition holds, int64 [rank, bound], and their number.
  std::pair<ValueId, Size> SelectedPositions(ValueId condition);

  DataExtents& extents_;
  Emitter& emitter_;
  Node node_;
  const std::vector<std::string>& names_;
  std::vector<ValueId> results_;
};

}  // namespace gradloom
