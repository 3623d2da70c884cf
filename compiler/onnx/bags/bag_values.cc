// Evaluates the body of a loop over bags for all iterations at once: numbers, parts and rows.
#include <algorithm>
#include <set>

#include "compiler/onnx/bags/bag_loops.h"

namespace gradloom {

Importer::BagLoop::MaybeLane Importer::BagLoop::EvalBinary(const onnx::NodeProto& node, const Lane& a, const Lane& b) {
  const std::string& op = node.op_type();
  const auto x = Numbers(a), y = Numbers(b);
  if (x && y) {
    Lane made{.kind = Kind::kNumbers};
    for (size_t i = 0; i < x->size(); ++i) {
      const int64_t p = (*x)[i], q = (*y)[i];
      if (op != "Add" && op != "Sub" && op != "Less" && op != "Equal" && op != "Greater") return std::nullopt;
      made.numbers.push_back(op == "Add" ? p + q : op == "Sub" ? p - q : op == "Less" ? p < q : op == "Equal" ? p == q : p > q);
    }
    return made;
  }
  const auto all = [&](int64_t number) { return y && std::all_of(y->begin(), y->end(), [&](int64_t n) { return n == number; }); };
  if (b.kind == Kind::kAt && x && op == "Sub" && std::all_of(x->begin(), x->end(), [&](int64_t n) { return n == x->at(0); }))
    return Lane{.kind = Kind::kBehind, .id = b.id, .numbers = b.numbers, .whole = x->at(0)};
  if ((op == "Equal" || op == "Less") && AreBounds(a, b)) return Lane{.kind = op == "Equal" ? Kind::kEmpty : Kind::kFilled};
  if (op == "Greater" && a.kind == Kind::kBehind && all(0)) return Lane{.kind = Kind::kFilled};
  if (op == "Div" && a.kind == Kind::kRow && a.by == "ReduceSum" && b.kind == Kind::kBehind) {
    // The length of the last bag.
    if (cuts_ == kNoValue || b.whole != words_ || !IsLast() || CutsOf(b.id).list != cuts_) return std::nullopt;
    divides_by_count_ = true;
    return Lane{.kind = Kind::kRow, .id = a.id, .kept = a.kept, .by = "ReduceMean", .single = a.single};
  }
  if (op == "Equal" && a.kind == Kind::kCount && all(0)) return Lane{.kind = Kind::kNone, .id = a.id};
  if (op == "Add" && a.kind == Kind::kPlace && all(1)) return Lane{.kind = Kind::kNext};
  if ((op == "Less" || op == "Equal" || op == "Add") && a.kind == Kind::kElement && y && all(y->at(0)))
    return Lane{.kind = Kind::kElement, .id = Emit(op, {a.id, NumberAs(y->at(0), TypeOf(a.id))})};
  if (op == "Div" && a.kind == Kind::kRow && a.by == "ReduceSum" && a.kept == kNoValue && y) {
    for (size_t i = 0; i < y->size(); ++i) {
      if (active(i) && (*y)[i] != length_) return std::nullopt;
    }
    return Lane{.kind = Kind::kRow, .id = a.id, .by = "ReduceMean", .single = a.single};
  }
  // Parts of equal rank broadcast as they do in each iteration.
  const Graph& graph = i_.emitter().graph();
  if (op == "Mul" && a.kind == Kind::kPart && b.kind == Kind::kPart && a.kept == b.kept &&
      graph.value(a.id).shape.rank() == graph.value(b.id).shape.rank())
    return Lane{.kind = Kind::kPart, .id = Emit("Mul", {a.id, b.id}), .kept = a.kept};
  return std::nullopt;
}

Importer::BagLoop::MaybeLane Importer::BagLoop::EvalGather(const onnx::NodeProto&, const Lane& data, const Lane& indices) {
  if (data.kind != Kind::kSame) return std::nullopt;
  if (const auto numbers = Numbers(indices)) {
    std::vector<int64_t> behind = *numbers;
    for (int64_t& at : behind) ++at;
    if (MaybeLane known = NumbersAt(data, *numbers, behind)) return known;
    return OfList(data) ? Lane{.kind = Kind::kAt, .id = data.id, .numbers = *numbers} : MaybeLane();
  }
  if (indices.kind == Kind::kPart && indices.kept == kNoValue)
    return Lane{.kind = Kind::kPart, .id = Emit("Gather", {data.id, indices.id}, {{"axis", int64_t{0}}})};
  if (indices.kind != Kind::kPlace && indices.kind != Kind::kKept) return std::nullopt;
  const int64_t extent = ExtentOf(data.id);
  if (cuts_ == kNoValue ? extent != trips_ * length_ : !MatchWords(extent)) return std::nullopt;
  if (indices.kind == Kind::kKept) return Lane{.kind = Kind::kPart, .id = Parts(data.id), .kept = indices.id};
  if (i_.emitter().graph().value(data.id).shape.rank() != 1) return std::nullopt;
  return Lane{.kind = Kind::kElement, .id = Parts(data.id)};
}

// Whether the value is a list of integers that is data of a step.
bool Importer::BagLoop::OfList(const Lane& data) {
  const Value& value = i_.emitter().graph().value(data.id);
  return data.kind == Kind::kSame && Constant(data) == nullptr && value.shape.rank() == 1 && IsInteger(value.dtype);
}

// Takes one element of a known list in each iteration, from `begins` to `ends`.
Importer::BagLoop::MaybeLane Importer::BagLoop::NumbersAt(const Lane& list, const std::vector<int64_t>& begins,
                                                          const std::vector<int64_t>& ends) {
  const Tensor* known = Constant(list);
  if (known == nullptr || known->shape().rank() != 1 || !IsInteger(known->dtype())) return std::nullopt;
  Lane made{.kind = Kind::kNumbers};
  for (size_t i = 0; i < begins.size(); ++i) {
    const int64_t at = begins[i];
    const bool one = at >= 0 && at < known->shape()[0] && ends[i] == at + 1;
    if (!one && active(i)) return std::nullopt;
    made.numbers.push_back(one ? ElementAsInt(known->view(), at) : 0);
  }
  return made;
}

// Whether iteration i takes the i-th of equal parts. The first active iteration gives their length.
bool Importer::BagLoop::MatchParts(const std::vector<int64_t>& begins, const std::vector<int64_t>& ends, int64_t extent) {
  if (cuts_ != kNoValue) return false;
  int64_t length = length_;
  for (size_t i = 0; i < ends.size() && length == 0; ++i) {
    if (active(i)) length = ends[i] - begins[i];
  }
  if (length <= 0 || trips_ * length != extent) return false;
  for (int64_t i = 0; i < trips_; ++i) {
    const auto at = static_cast<size_t>(i);
    if (active(at) && (begins[at] != i * length || std::min(ends[at], extent) != (i + 1) * length)) return false;
  }
  length_ = length;
  return true;
}

ValueId Importer::BagLoop::Parts(ValueId data) {
  if (cuts_ != kNoValue) return data;
  ValueId& parts = taken_.try_emplace(data, kNoValue).first->second;
  if (parts != kNoValue) return parts;
  const Shape& shape = i_.emitter().graph().value(data).shape;
  std::vector<int64_t> target{trips_, length_};
  for (int axis = 1; axis < shape.rank(); ++axis) target.push_back(shape[axis]);
  return parts = Emit("Reshape", {data, Ints(target)});
}

Importer::BagLoop::MaybeLane Importer::BagLoop::EvalSlice(const onnx::NodeProto& node, Body& body, const Lane& data) {
  if (node.input_size() < 3 || node.input_size() > 4 || data.kind != Kind::kSame) return std::nullopt;
  const MaybeLane begin = Eval(node.input(1), body), end = Eval(node.input(2), body);
  if (!begin || !end) return std::nullopt;
  if (node.input_size() == 4 && Axes(node, 3, body) != std::vector<int64_t>{0}) return std::nullopt;
  if (begin->kind == Kind::kAt) {
    if (!MatchBags(*begin, *end) || !MatchWords(ExtentOf(data.id))) return std::nullopt;
    return Lane{.kind = Kind::kPart, .id = data.id};
  }
  const auto begins = Numbers(*begin), ends = Numbers(*end);
  if (!begins || !ends) return std::nullopt;
  if (MaybeLane numbers = NumbersAt(data, *begins, *ends)) return numbers;
  if (!MatchParts(*begins, *ends, ExtentOf(data.id))) {
    for (size_t i = 0; i < begins->size(); ++i) {
      if (active(i) && (*ends)[i] != (*begins)[i] + 1) return std::nullopt;
    }
    return OfList(data) ? Lane{.kind = Kind::kAt, .id = data.id, .numbers = *begins} : MaybeLane();
  }
  return Lane{.kind = Kind::kPart, .id = Parts(data.id)};
}

std::optional<std::vector<int64_t>> Importer::BagLoop::Axes(const onnx::NodeProto& node, int input, Body& body) {
  if (const auto* axes = i_.FindAttribute(node, "axes", body.scope)) return std::vector<int64_t>(axes->ints().begin(), axes->ints().end());
  const MaybeLane lane = node.input_size() > input ? Eval(node.input(input), body) : std::nullopt;
  const Tensor* data = lane ? Constant(*lane) : nullptr;
  return data != nullptr && data->dtype() == DType::kInt64 ? std::optional(IntValues(data->view())) : std::nullopt;
}

Importer::BagLoop::MaybeLane Importer::BagLoop::EvalReduced(const onnx::NodeProto& node, Body& body, const Lane& part) {
  const std::string& op = node.op_type();
  if ((op != "ReduceSum" && op != "ReduceMean" && op != "ReduceMax") || part.kind != Kind::kPart) return std::nullopt;
  if (Axes(node, 1, body) != std::vector<int64_t>{0} || !IsFloating(TypeOf(part.id))) return std::nullopt;
  const auto* keeps = i_.FindAttribute(node, "keepdims", body.scope);
  return Lane{.kind = Kind::kRow, .id = part.id, .kept = part.kept, .by = op, .single = keeps == nullptr || keeps->i() != 0};
}

// Returns the rows of all iterations: reductions of each part, or of its kept elements; zeros if nothing is kept.
ValueId Importer::BagLoop::Reduced(const Lane& row) {
  if (cuts_ != kNoValue) return Collected(row);
  const ValueId axis = Ints({1});
  const auto reduced = [&](const std::string& by, ValueId id) { return Emit(by, {id, axis}, {{"keepdims", int64_t{0}}}); };
  if (row.kept == kNoValue) return reduced(row.by, row.id);
  const int rank = i_.emitter().graph().value(row.id).shape.rank();
  const DType dtype = TypeOf(row.id);
  // Adds axes so that a value per part, or per element of a part, broadcasts to rows or parts.
  const auto spread = [&](ValueId id, int from) {
    std::vector<int64_t> axes;
    for (int i = 2; i < rank; ++i) axes.push_back(i + from - 2);
    return axes.empty() ? id : Emit("Unsqueeze", {id, Ints(axes)});
  };
  const ValueId zero = NumberAs(0, dtype), kept = spread(row.kept, 2);
  const ValueId count = reduced("ReduceSum", Emit("Cast", {row.kept}, {{"to", static_cast<int64_t>(dtype)}}));
  if (row.by == "ReduceMax") {
    const double least = -(dtype == DType::kFloat16 ? 65504.0 : 3e38);
    const ValueId lowest = i_.emitter().AddConstant(origin_ + "/lowest", Converted(Tensor::Scalar<double>(least).view(), dtype));
    const ValueId most = reduced("ReduceMax", Emit("Where", {kept, row.id, lowest}));
    return Emit("Where", {spread(Emit("Greater", {count, zero}), 1), most, zero});
  }
  const ValueId sum = reduced("ReduceSum", Emit("Where", {kept, row.id, zero}));
  return row.by == "ReduceSum" ? sum : Emit("Div", {sum, spread(Emit("Max", {count, NumberAs(1, dtype)}), 1)});
}

// Evaluates a node whose operands are known and the same in every iteration.
Importer::BagLoop::MaybeLane Importer::BagLoop::EvalConstant(const onnx::NodeProto& node, Body& body) {
  static const std::set<std::string> kOps = {"Shape",   "Size",  "Concat",         "Expand", "Cast", "CastLike", "Reshape", "Unsqueeze",
                                             "Squeeze", "Slice", "Gather",         "Add",    "Sub",  "Mul",      "Equal",   "Less",
                                             "Range",   "Where", "ConstantOfShape"};
  if (!kOps.contains(node.op_type()) || node.output_size() != 1) return std::nullopt;
  std::vector<std::pair<std::string, ValueId>> operands;
  for (const std::string& input : node.input()) {
    const MaybeLane lane = input.empty() ? MaybeLane() : Eval(input, body);
    if (!lane || lane->kind != Kind::kSame) return std::nullopt;
    if (node.op_type() != "Shape" && node.op_type() != "Size" && Constant(*lane) == nullptr) return std::nullopt;
    operands.emplace_back(input, lane->id);
  }
  for (const auto& [name, id] : operands) body.scope.names.try_emplace(name, Binding{id, nullptr});
  i_.RunNode(node, body.scope);
  const Binding& made = body.scope.names.at(node.output(0));
  return made.tensor == kNoValue ? MaybeLane() : Lane{.kind = Kind::kSame, .id = made.tensor};
}

}  // namespace gradloom
