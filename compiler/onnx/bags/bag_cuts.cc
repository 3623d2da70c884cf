// Bags whose beginnings are data of a step: an EmbeddingBag with offsets that are fed.
#include "compiler/onnx/bags/bag_loops.h"

namespace gradloom {

// Traces a list back through the nodes that exporters put between the offsets and the loop: a Concat of the total number of words, and a
// Slice from the second element on.
Importer::BagLoop::Cuts Importer::BagLoop::CutsOf(ValueId id) {
  Cuts cuts{.list = id};
  const auto number = [&](ValueId operand) -> std::optional<int64_t> {
    const Tensor* data = operand == kNoValue ? nullptr : Constant(operand);
    return data != nullptr && data->elements() == 1 && IsInteger(data->dtype()) ? std::optional(ElementAsInt(data->view(), 0))
                                                                                : std::nullopt;
  };
  while (const Node* node = i_.emitter().Producer(cuts.list)) {
    const auto input = [&](size_t i) { return i < node->inputs.size() ? node->inputs[i] : kNoValue; };
    if (!node->domain.empty()) break;
    if (node->op == "Slice" && !cuts.end) {
      const auto begin = number(input(1)), end = number(input(2));
      const auto axis = input(3) == kNoValue ? 0 : number(input(3)), step = input(4) == kNoValue ? 1 : number(input(4));
      if (!begin || *begin < 0 || !end || *end < ExtentOf(input(0)) || axis != 0 || step != 1) break;
      cuts.shift += *begin;
    } else if (node->op == "Concat" && node->inputs.size() == 2 && !cuts.end) {
      cuts.end = number(input(1));
      if (!cuts.end) break;
    } else if (node->op != "Identity") {
      break;
    }
    cuts.list = input(0);
  }
  return cuts;
}

// Whether these are the beginning and the end of bag i in every active iteration.
bool Importer::BagLoop::AreBounds(const Lane& begin, const Lane& end) {
  if (begin.kind != Kind::kAt || end.kind != Kind::kAt) return false;
  const Cuts from = CutsOf(begin.id), to = CutsOf(end.id);
  const int64_t extent = ExtentOf(from.list);
  if (from.list != to.list || extent != trips_ + (to.end ? 0 : 1)) return false;
  ends_ = !to.end;
  for (int64_t i = 0; i < trips_; ++i) {
    const auto at = static_cast<size_t>(i);
    if (active(at) && (begin.numbers[at] + from.shift != i || end.numbers[at] + to.shift != i + 1)) return false;
  }
  return !to.end || MatchWords(*to.end);
}

// Whether only the last iteration is active.
bool Importer::BagLoop::IsLast() const {
  for (int64_t i = 0; i + 1 < trips_; ++i) {
    if (active(static_cast<size_t>(i))) return false;
  }
  return true;
}

bool Importer::BagLoop::MatchBags(const Lane& begin, const Lane& end) {
  if (length_ != 0 || begin.kind != Kind::kAt) return false;
  const Cuts cuts = CutsOf(begin.id);
  if (const auto ends = Numbers(end)) {
    // The last bag takes all remaining words, whatever its end is.
    open_ = true;
    if (!IsLast() || begin.numbers.back() + cuts.shift != trips_ - 1 || !MatchWords(ends->back())) return false;
  } else if (!AreBounds(begin, end)) {
    return false;
  }
  if (cuts_ == kNoValue) cuts_ = cuts.list;
  return cuts_ == cuts.list;
}

// Whether this can be the total number of words of all bags.
bool Importer::BagLoop::MatchWords(int64_t extent) {
  if (words_ == 0) words_ = extent;
  return extent > 0 && words_ == extent;
}

// Returns int64 [words, 1]: how many bags begin at or before each word; 0 before the first bag. `open`: the last bag has no end.
ValueId Importer::BagLoop::BagIndices(int64_t words, bool open) {
  ValueId& made = bag_indices_.try_emplace(open, kNoValue).first->second;
  if (made != kNoValue) return made;
  Emitter& emitter = i_.emitter();
  const int64_t cuts = emitter.graph().value(cuts_).shape[0] - (ends_ && open ? 1 : 0);
  const auto filled = [&](int64_t extent, int64_t number) {
    return Emit("ConstantOfShape", {Ints({extent})}, {{"value", Tensor::From<int64_t>({number}, Shape{1})}});
  };
  ValueId places = ends_ && open ? Emit("Slice", {cuts_, Ints({0}), Ints({cuts}), Ints({0})}) : cuts_;
  if (TypeOf(places) != DType::kInt64) places = Emit("Cast", {places}, {{"to", static_cast<int64_t>(DType::kInt64)}});
  // An empty bag may begin after the last word.
  const ValueId begins =
      Emit("ScatterElements", {filled(words + 1, 0), places, filled(cuts, 1)}, {{"axis", int64_t{0}}, {"reduction", std::string("add")}});
  const ValueId axis = emitter.AddConstant(origin_ + "/axis", Tensor::Scalar<int64_t>(0));
  const ValueId counted = Emit("Slice", {Emit("CumSum", {begins, axis}), Ints({0}), Ints({words}), Ints({0})});
  return made = Emit("Unsqueeze", {counted, Ints({1})});
}

// Returns the rows of all bags. An empty bag gives zeros, for a mean too: the older exporter's file would divide by 0, while PyTorch does
// not.
ValueId Importer::BagLoop::Collected(const Lane& row) {
  const Shape shape = i_.emitter().graph().value(row.id).shape;
  const DType dtype = TypeOf(row.id);
  const int64_t bags = i_.emitter().graph().value(cuts_).shape[0] - (ends_ ? 1 : 0);
  // There is one extra row before the first bag, and one after the last bag if that has an end.
  const auto collect = [&](ValueId words, std::vector<int64_t> extents, double from, const char* by, bool open) {
    extents[0] = bags + (ends_ && !open ? 2 : 1);
    const Attributes value = {{"value", Converted(Tensor::From<double>({from}, Shape{1}).view(), dtype)}};
    const ValueId start = Emit("ConstantOfShape", {Ints(extents)}, value);
    const ValueId all = Emit("ScatterND", {start, BagIndices(shape[0], open), words}, {{"reduction", std::string(by)}});
    return Emit("Slice", {all, Ints({1}), Ints({bags + 1}), Ints({0})});
  };
  const auto spread = [&](ValueId id) {
    std::vector<int64_t> axes;
    for (int i = 1; i < shape.rank(); ++i) axes.push_back(i);
    return axes.empty() ? id : Emit("Unsqueeze", {id, Ints(axes)});
  };
  const ValueId zero = NumberAs(0, dtype);
  const double least = -(dtype == DType::kFloat16 ? 65504.0 : 3e38), start = row.by == "ReduceMax" ? least : 0.0;
  ValueId words = row.id;
  if (row.kept != kNoValue) {
    const ValueId other = row.by == "ReduceMax"
                              ? i_.emitter().AddConstant(origin_ + "/lowest", Converted(Tensor::Scalar<double>(least).view(), dtype))
                              : zero;
    words = Emit("Where", {spread(row.kept), words, other});
  }
  const ValueId made = collect(words, shape.dims(), start, row.by == "ReduceMax" ? "max" : "add", open_);
  if (row.by == "ReduceSum") return made;
  const ValueId counted = row.kept != kNoValue ? Emit("Cast", {row.kept}, {{"to", static_cast<int64_t>(dtype)}})
                                               : Emit("ConstantOfShape", {Ints({shape[0]})},
                                                      {{"value", Converted(Tensor::From<double>({1}, Shape{1}).view(), dtype)}});
  const ValueId count = spread(collect(counted, {0}, 0, "add", open_ || divides_by_count_));
  if (row.by == "ReduceMax") return Emit("Where", {Emit("Greater", {count, zero}), made, zero});
  return Emit("Div", {made, Emit("Max", {count, NumberAs(1, dtype)})});
}

}  // namespace gradloom
