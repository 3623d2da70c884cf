#include "compiler/onnx/extents/extents.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "compiler/onnx/emitter.h"
#include "compiler/onnx/extents/extent_node.h"

namespace gradloom {

const Axes& DataExtents::Of(ValueId id) const {
  static const Axes kNone;
  const auto found = axes_.find(id);
  return found == axes_.end() ? kNone : found->second;
}

const std::vector<Size>* DataExtents::NumbersOf(ValueId id) const {
  const auto found = numbers_.find(id);
  return found == numbers_.end() ? nullptr : &found->second;
}

// Whether the number of elements of the operator's result depends on the data of an operand that is not known.
bool DataExtents::IsSource(const Node& node) const {
  if (!node.domain.empty()) return false;
  static const std::map<std::string, std::vector<size_t>> kDecidingOperands = {
      {"NonZero", {0}}, {"Compress", {1}}, {"Unique", {0}}, {"NonMaxSuppression", {0, 1, 2, 3, 4}}, {"Slice", {1, 2}}};
  const auto found = kDecidingOperands.find(node.op);
  if (found == kDecidingOperands.end()) return false;
  return std::any_of(found->second.begin(), found->second.end(), [&](size_t i) {
    if (i >= node.inputs.size() || node.inputs[i] == kNoValue) return false;
    // Trained tensors count as data.
    return emitter_.may_train(node.inputs[i]) || emitter_.Computed(node.inputs[i]) == kNoValue;
  });
}

bool DataExtents::MustExpand(const Node& node) const {
  if (!axes_.empty() || !numbers_.empty()) {
    for (ValueId id : node.inputs) {
      if (id != kNoValue && (axes_.contains(id) || numbers_.contains(id))) return true;
    }
  }
  return IsSource(node);
}

std::vector<ValueId> DataExtents::Emit(Node node, const std::vector<std::string>& names) {
  return ExtentNode(*this, std::move(node), names).Run();
}

namespace {

const std::vector<std::string> kNoNames;

// Returns a node that stands for the origin of added nodes.
Node NodeAt(const std::string& origin) {
  Node node;
  node.op = "Identity";
  node.origin = origin;
  return node;
}

}  // namespace

std::vector<std::pair<int, ValueId>> DataExtents::ScalarsOf(ValueId id) {
  std::vector<std::pair<int, ValueId>> scalars;
  const Axes axes = Of(id);
  for (const auto& [axis, size] : axes) scalars.emplace_back(axis, ScalarOf(size, emitter_.graph().value(id).name));
  return scalars;
}

ValueId DataExtents::ScalarOf(const Size& size, const std::string& origin) {
  return ExtentNode(*this, NodeAt(origin), kNoNames).ScalarOf(size);
}

std::optional<std::vector<Size>> DataExtents::Numbers(ValueId id) { return ExtentNode(*this, NodeAt(""), kNoNames).Numbers(id); }

Size DataExtents::ExtentOf(ValueId id, int axis) const {
  const Axes& unknown = Of(id);
  const auto found = unknown.find(axis);
  return found == unknown.end() ? Size{emitter_.graph().value(id).shape[axis]} : found->second;
}

int64_t DataExtents::Bound(const Size& size) const {
  int64_t bound = size.factor;
  for (ValueId scalar : size.scalars) bound *= bounds_.at(scalar);
  return bound;
}

int64_t DataExtents::Least(const Size& size) const {
  if (size.known()) return size.factor;
  const bool is_signed = std::any_of(size.scalars.begin(), size.scalars.end(), [&](ValueId id) { return least_.contains(id); });
  if (size.factor >= 0 && !is_signed) return 0;
  int64_t most = std::abs(size.factor);
  for (ValueId scalar : size.scalars) {
    const auto least = least_.find(scalar);
    most *= std::max(bounds_.at(scalar), least == least_.end() ? 0 : -least->second);
  }
  return -most;
}

Size DataExtents::NotNegative(const Size& size, const std::string& origin) {
  return ExtentNode(*this, NodeAt(origin), kNoNames).NotNegative(size);
}

Size DataExtents::Counted(ValueId scalar, int64_t bound, int64_t least) {
  bounds_[scalar] = bound;
  if (least < 0) least_[scalar] = least;
  return {1, {scalar}};
}

void DataExtents::Declare(ValueId id, int axis, const Size& size) {
  if (!size.known()) axes_[id][axis] = size;
}

void DataExtents::DeclareNumbers(ValueId id, std::vector<Size> numbers) {
  if (std::any_of(numbers.begin(), numbers.end(), [](const Size& size) { return !size.known(); })) numbers_[id] = std::move(numbers);
}

Size DataExtents::Inherited(const DataExtents& outer, const Size& size, const std::function<ValueId(ValueId)>& capture) {
  Size same{size.factor, {}};
  for (ValueId scalar : size.scalars) {
    same.scalars.push_back(capture(scalar));
    Counted(same.scalars.back(), outer.bounds_.at(scalar), outer.Least({1, {scalar}}));
  }
  std::sort(same.scalars.begin(), same.scalars.end());
  return same;
}

void DataExtents::InheritAxes(const DataExtents& outer, ValueId id, ValueId inner, const std::function<ValueId(ValueId)>& capture) {
  for (const auto& [axis, size] : outer.Of(id)) Declare(inner, axis, Inherited(outer, size, capture));
}

void DataExtents::Inherit(const DataExtents& outer, ValueId id, ValueId inner, const std::function<ValueId(ValueId)>& capture) {
  InheritAxes(outer, id, inner, capture);
  const std::vector<Size>* numbers = outer.NumbersOf(id);
  if (numbers == nullptr) return;
  std::vector<Size> same;
  for (const Size& size : *numbers) same.push_back(Inherited(outer, size, capture));
  DeclareNumbers(inner, std::move(same));
}

ValueId DataExtents::PaddedTo(ValueId id, const Shape& bounds, const std::string& origin) {
  return ExtentNode(*this, NodeAt(origin), kNoNames).PaddedTo(id, bounds);
}

ValueId DataExtents::ElementOf(ValueId id, int64_t i, const std::string& origin) {
  return ExtentNode(*this, NodeAt(origin), kNoNames).ElementOf(id, i);
}

// --- numbers ------------------------------------------------------------------------------

Size ExtentNode::NotNegative(const Size& size) {
  return Least(size) >= 0 ? size : NewSize(Op("Max", {ScalarOf(size), Int(0)}), std::max<int64_t>(Bound(size), 0));
}

ValueId ExtentNode::ScalarOf(const Size& size) {
  if (size.known()) return Int(size.factor);
  if (size.factor == 1 && size.scalars.size() == 1) return size.scalars[0];
  const auto made = extents_.products_.find(size);
  if (made != extents_.products_.end()) return made->second;
  ValueId product = size.scalars[0];
  for (size_t i = 1; i < size.scalars.size(); ++i) product = Mul(product, size.scalars[i]);
  if (size.factor != 1) product = Mul(product, Int(size.factor));
  return extents_.products_[size] = product;
}

Size ExtentNode::Times(const Size& a, const Size& b) const {
  Size product{a.factor * b.factor, a.scalars};
  product.scalars.insert(product.scalars.end(), b.scalars.begin(), b.scalars.end());
  std::sort(product.scalars.begin(), product.scalars.end());
  if (product.factor == 0) product.scalars.clear();
  return product;
}

std::optional<Size> ExtentNode::Quotient(const Size& a, const Size& b) {
  if (b.factor == 0 || a.factor % b.factor != 0) return std::nullopt;
  Size quotient{a.factor / b.factor, a.scalars};
  for (ValueId scalar : b.scalars) {
    const auto at = std::find(quotient.scalars.begin(), quotient.scalars.end(), scalar);
    if (at == quotient.scalars.end()) return std::nullopt;
    quotient.scalars.erase(at);
  }
  return quotient;
}

Size ExtentNode::Sum(const Size& a, const Size& b) {
  if (a.scalars == b.scalars) return {a.factor + b.factor, a.scalars};
  if (a == Size{0} || b == Size{0}) return a == Size{0} ? b : a;
  const int64_t bound = Bound(a) + Bound(b);
  return NewSize(Add(ScalarOf(a), ScalarOf(b)), bound);
}

namespace {

// Tensors with more elements are not shape arithmetic.
constexpr int64_t kMaxKnownNumbers = 64;

bool IsSmallIntegers(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  return (value.dtype == DType::kInt64 || value.dtype == DType::kInt32) && value.shape.rank() <= 1 &&
         value.shape.elements() <= kMaxKnownNumbers;
}

}  // namespace

std::optional<std::vector<Size>> ExtentNode::Numbers(ValueId id) const {
  if (id == kNoValue) return std::nullopt;
  if (const auto* found = extents_.NumbersOf(id)) return *found;
  const Tensor* data = emitter_.Constant(id);
  if (data == nullptr || !IsSmallIntegers(emitter_.graph(), id)) return std::nullopt;
  std::vector<Size> numbers;
  for (int64_t value : IntValues(data->view())) numbers.push_back({value});
  return numbers;
}

// Evaluates an operator that moves elements on their positions in a list of all of them.
std::optional<std::vector<Size>> ExtentNode::MovedNumbers() {
  static const std::set<std::string> kFirst = {"Identity", "Cast",   "Squeeze", "Unsqueeze", "Reshape",
                                               "Flatten",  "Gather", "Slice",   "Expand",    "Tile"};
  const bool all = node_.op == "Concat", choice = node_.op == "Where";
  if (!all && !choice && !kFirst.contains(node_.op)) return std::nullopt;
  std::vector<Size> list;
  std::vector<Tensor> operands;
  for (size_t i = 0; i < num_inputs(); ++i) {
    if (in(i) == kNoValue) {
      operands.emplace_back();
    } else if (all || (choice ? i > 0 : i == 0)) {
      const auto numbers = Numbers(in(i));
      if (!numbers) return std::nullopt;
      std::vector<int64_t> places;
      for (const Size& size : *numbers) {
        places.push_back(static_cast<int64_t>(list.size()));
        list.push_back(size);
      }
      operands.push_back(Tensor::From(places, shape(in(i))));
    } else {
      const Tensor* data = emitter_.Constant(in(i));
      if (data == nullptr) return std::nullopt;
      operands.push_back(*data);
    }
  }
  Node moves = node_;
  if (moves.op == "Cast") moves.attributes.set("to", static_cast<int64_t>(DType::kInt64));
  Tensor moved;
  if (!emitter_.ComputeOn(moves, operands, moved)) return std::nullopt;
  std::vector<Size> numbers;
  for (int64_t place : IntValues(moved.view())) numbers.push_back(list[static_cast<size_t>(place)]);
  return numbers;
}

// Elements of `result` that are not products get new scalars. Returns an empty list if one of them has no bound.
std::vector<Size> ExtentNode::Arithmetic(const std::vector<std::vector<Size>>& operands, ValueId result) {
  size_t count = 1;
  for (const auto& operand : operands) {
    if (operand.empty()) return {};
    count = std::max(count, operand.size());
  }
  std::vector<Size> numbers;
  for (size_t i = 0; i < count; ++i) {
    const Size a = operands[0][operands[0].size() == 1 ? 0 : i], b = operands[1][operands[1].size() == 1 ? 0 : i];
    if (node_.op == "Mul" && (Least(a) >= 0 || b.known() || Least(b) >= 0) && (a.factor >= 0 || b.known()) &&
        (b.factor >= 0 || a.known())) {
      numbers.push_back(Times(a, b));
      continue;
    }
    if (node_.op == "Div") {
      if (const auto quotient = Quotient(a, b)) {
        numbers.push_back(*quotient);
        continue;
      }
    }
    if (a.factor < 0 || (b.factor < 0 && !b.known())) return {};
    int64_t bound = -1, least = 0;
    if (node_.op == "Add") bound = Bound(a) + Bound(b), least = Least(a) + Least(b);
    if (node_.op == "Sub") bound = Bound(a) - Least(b), least = Least(a) - Bound(b);
    if (node_.op == "Div" && Least(b) >= 0 && b.factor > 0) bound = b.known() ? Bound(a) / b.factor : Bound(a), least = Least(a);
    if (node_.op == "Min") bound = std::min(Bound(a), Bound(b)), least = std::min(Least(a), Least(b));
    if (node_.op == "Max") bound = std::max(Bound(a), Bound(b)), least = std::max(Least(a), Least(b));
    if (node_.op == "Mod" && Least(b) >= 0 && b.factor > 0) bound = std::max<int64_t>(Bound(b) - 1, 0), least = Least(a);
    if (bound < 0) return {};
    numbers.push_back(NewSize(ElementOf(result, static_cast<int64_t>(i)), bound, least));
  }
  return numbers;
}

// Returns the sum, minimum or maximum; an empty list if it has no bound.
std::vector<Size> ExtentNode::Reduced(const std::vector<Size>& elements) {
  if (elements.empty() || std::any_of(elements.begin(), elements.end(), [](const Size& size) { return size.factor < 0; })) return {};
  if (std::all_of(elements.begin(), elements.end(), [&](const Size& size) { return size == elements[0]; }) && node_.op != "ReduceSum")
    return {elements[0]};
  const auto joined = [&](int64_t a, int64_t b) {
    return node_.op == "ReduceMin" ? std::min(a, b) : node_.op == "ReduceMax" ? std::max(a, b) : a + b;
  };
  int64_t bound = Bound(elements[0]), least = Least(elements[0]);
  for (size_t i = 1; i < elements.size(); ++i) {
    bound = joined(bound, Bound(elements[i]));
    least = joined(least, Least(elements[i]));
  }
  return {NewSize(ElementOf(results_[0], 0), bound, least)};
}

ValueId ExtentNode::ElementOf(ValueId id, int64_t i) {
  ValueId scalar = id;
  if (rank(scalar) > 0) scalar = Op("Gather", {scalar, Int(i)}, {{"axis", int64_t{0}}});
  if (dtype(scalar) != DType::kInt64) scalar = Op("Cast", {scalar}, {{"to", static_cast<int64_t>(DType::kInt64)}});
  return scalar;
}

// Handles nodes over integers that are extents; returns false for any other node.
bool ExtentNode::RunNumbers() {
  bool any = false, integers = true;
  for (ValueId id : node_.inputs) {
    if (id == kNoValue) continue;
    if (!extents_.Of(id).empty()) return false;
    any = any || extents_.NumbersOf(id) != nullptr;
    integers = integers && Numbers(id).has_value();
  }
  if (!any || !node_.domain.empty() || names_.size() != 1) return false;
  const std::string& op = node_.op;
  std::vector<Size> numbers;
  const auto all_known = [&] { return std::all_of(numbers.begin(), numbers.end(), [](const Size& size) { return size.known(); }); };
  if (auto moved = MovedNumbers()) {
    numbers = std::move(*moved);
    Same();
  } else if (op == "Equal" && integers) {
    // Extents are never negative.
    const auto a = *Numbers(in(0)), b = *Numbers(in(1));
    const size_t count = a.size() == 1 ? b.size() : a.size();
    if (b.size() != count && b.size() != 1) return false;
    std::vector<bool> equal;
    const auto differ = [&](const Size& p, const Size& q) { return p.known() && p.factor < 0 && Least(q) >= 0; };
    for (size_t i = 0; i < count; ++i) {
      const Size &p = a[a.size() == 1 ? 0 : i], &q = b[b.size() == 1 ? 0 : i];
      if (!(p == q) && !(p.known() && q.known()) && !differ(p, q) && !differ(q, p)) return false;
      equal.push_back(p == q);
    }
    const bool is_scalar = rank(in(0)) == 0 && rank(in(1)) == 0;
    const Shape made = is_scalar ? Shape{} : Shape{static_cast<int64_t>(count)};
    results_[0] = emitter_.AddConstant(names_[0], Tensor::From(equal, made));
    return true;
  } else if (op == "ReduceProd" && integers && num_inputs() == 1) {
    Size product{1};
    const std::vector<Size> factors = *Numbers(in(0));
    for (const Size& size : factors) product = Times(product, size);
    numbers = {product};
    Same();
  } else if ((op == "ReduceMin" || op == "ReduceMax" || op == "ReduceSum") && Numbers(in(0)) && rank(in(0)) == 1 && num_inputs() <= 2) {
    const std::vector<Size> elements = *Numbers(in(0));
    Same();
    if (results_[0] != kNoValue && emitter_.graph().value(results_[0]).shape.elements() == 1) numbers = Reduced(elements);
  } else if ((op == "Mul" || op == "Add" || op == "Sub" || op == "Div" || op == "Min" || op == "Max" || op == "Mod") && integers &&
             num_inputs() == 2) {
    const std::vector<std::vector<Size>> operands{*Numbers(in(0)), *Numbers(in(1))};
    Same();
    if (results_[0] != kNoValue) numbers = Arithmetic(operands, results_[0]);
  } else {
    return false;
  }
  if (results_[0] == kNoValue || numbers.empty() || !IsSmallIntegers(emitter_.graph(), results_[0])) return true;
  if (!all_known()) {
    extents_.numbers_[results_[0]] = numbers;
    return true;
  }
  std::vector<int64_t> values;
  for (const Size& size : numbers) values.push_back(size.factor);
  const ValueId made = results_[0];
  results_[0] = emitter_.AddConstant(names_[0], Converted(Tensor::From(values, shape(made)).view(), dtype(made)));
  return true;
}

}  // namespace gradloom
