#include "compiler/passes/patterns/fuse_moves.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/passes/devices/slice_part.h"
#include "compiler/passes/graph_match.h"

namespace gradloom {
namespace {

// With more or smaller blocks, the Gather is no longer a few large copies.
constexpr int64_t kMaxBlocks = 64;
// Below this many elements, the overhead of a copy exceeds the cost of its elements.
constexpr int64_t kSmallestBlock = 8;

// A part of x.
struct Part : SlicePart {
  ValueId x = kNoValue;
};

bool IsIdentity(const std::vector<int64_t>& perm) {
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

class Fuser {
 public:
  explicit Fuser(GraphBuilder& builder) : b_(builder), graph_(builder.graph()), match_(graph_) {}

  void Run() {
    std::map<int, std::function<void()>> emits;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (!node.domain.empty()) continue;
      std::function<void()> emit;
      if (node.op == "Concat") emit = MatchConcat(node);
      if (node.op == "Transpose") emit = MatchTranspose(node);
      if (node.op == "Gather") emit = MatchGather(node);
      if (emit) emits.emplace(static_cast<int>(i), std::move(emit));
    }
    ReplaceNodes(graph_, emits);
  }

 private:
  // Returns the node that computes a value that only `reader` reads, if it has this operator.
  const Node* SoleProducer(const Node& reader, ValueId id, const char* op) const {
    const Node* made = match_.ProducedBy(id, op);
    return made != nullptr && made->outputs[0] == id && match_.OnlyReader(id) == &reader ? made : nullptr;
  }

  std::optional<Part> PartRead(const Node& slice) const {
    const std::optional<SlicePart> part = PartOf(graph_, slice, b_.shape(slice.inputs[0]), b_.shape(slice.outputs[0]));
    return part ? std::optional(Part{*part, slice.inputs[0]}) : std::nullopt;
  }

  std::function<void()> MatchConcat(const Node& concat) const {
    std::vector<Part> parts;
    for (ValueId input : concat.inputs) {
      const Node* slice = SoleProducer(concat, input, "Slice");
      const std::optional<Part> part = slice == nullptr ? std::nullopt : PartRead(*slice);
      if (!part || part->begin == part->end || (!parts.empty() && (part->x != parts[0].x || part->axis != parts[0].axis))) return {};
      parts.push_back(*part);
    }
    const ValueId x = parts.empty() ? kNoValue : parts[0].x, result = concat.outputs[0];
    if (parts.size() < 2 || NormalAxis(concat.attributes.Int("axis", 0), b_.shape(x).rank()) != parts[0].axis) return {};
    const int axis = parts[0].axis;
    const Shape shape = b_.shape(x);
    std::vector<Part> sorted = parts;
    std::sort(sorted.begin(), sorted.end(), [](const Part& a, const Part& b) { return a.begin < b.begin; });
    int64_t block = shape[axis], covered = 0;
    for (const Part& part : sorted) {
      if (part.begin != covered) return {};
      covered = part.end;
      block = std::gcd(block, covered);
    }
    const int64_t blocks = shape[axis] / block, elements = block * shape.strides()[static_cast<size_t>(axis)];
    if (covered != shape[axis] || blocks > kMaxBlocks || elements < kSmallestBlock) return {};
    std::vector<int64_t> order;
    for (const Part& part : parts) {
      for (int64_t at = part.begin; at < part.end; at += block) order.push_back(at / block);
    }
    return [this, x, result, axis, block, order, origin = concat.origin] {
      b_.set_origin(origin);
      const Shape to = b_.shape(result);
      Shape divided;
      for (int d = 0; d < to.rank(); ++d) {
        if (d == axis) divided.push_back(static_cast<int64_t>(order.size()));
        divided.push_back(d == axis ? block : to[d]);
      }
      const ValueId moved = b_.Op("Gather", {b_.Reshape(x, divided), b_.Ints(order)}, {{"axis", int64_t{axis}}});
      const ValueId dims = b_.Ints(to.dims());
      graph_.AddNode({.op = "Reshape", .inputs = {moved, dims}, .outputs = {result}, .origin = origin});
    };
  }

  static std::vector<int64_t> PermOf(const Node& transpose, int rank) {
    std::vector<int64_t> reversed;
    for (int d = rank; d-- > 0;) reversed.push_back(d);
    return transpose.attributes.Ints("perm", reversed);
  }

  std::function<void()> MatchTranspose(const Node& transpose) const {
    const Node* gather = SoleProducer(transpose, transpose.inputs[0], "Gather");
    if (gather == nullptr) return {};
    const ValueId x = gather->inputs[0], places = gather->inputs[1], result = transpose.outputs[0];
    const std::optional<int> axis = NormalAxis(gather->attributes.Int("axis", 0), b_.shape(x).rank());
    const int width = b_.shape(places).rank(), rank = b_.shape(result).rank();
    if (!axis || width < 2) return {};
    std::vector<int64_t> inside;
    const std::vector<int64_t> perm = PermOf(transpose, rank);
    for (int d = 0; d < rank; ++d) {
      const int64_t from = perm[static_cast<size_t>(d)];
      const bool of_places = d >= *axis && d < *axis + width;
      if (of_places ? from < *axis || from >= *axis + width : from != d) return {};
      if (of_places) inside.push_back(from - *axis);
    }
    return [this, x, places, result, axis = *axis, inside, origin = transpose.origin] {
      b_.set_origin(origin);
      const ValueId moved = b_.Transpose(places, inside);
      graph_.AddNode(
          {.op = "Gather", .inputs = {x, moved}, .outputs = {result}, .attributes = {{"axis", int64_t{axis}}}, .origin = origin});
    };
  }

  std::function<void()> MatchGather(const Node& gather) const {
    const Node* transpose = SoleProducer(gather, gather.inputs[0], "Transpose");
    if (transpose == nullptr) return {};
    const ValueId x = transpose->inputs[0], places = gather.inputs[1], result = gather.outputs[0];
    const Shape shape = b_.shape(x);
    const std::optional<int> axis = NormalAxis(gather.attributes.Int("axis", 0), shape.rank());
    // Transposing after the gather would cost more if its result is larger than x.
    if (!axis || b_.shape(result).elements() > shape.elements()) return {};
    const std::vector<int64_t> perm = PermOf(*transpose, shape.rank());
    const int64_t from = perm[static_cast<size_t>(*axis)], width = b_.shape(places).rank();
    // The axes of x in the new result: those after `from` are shifted by the axes that replace it.
    std::vector<int64_t> order;
    for (int64_t source : perm) {
      if (source != from) {
        order.push_back(source < from ? source : source + width - 1);
        continue;
      }
      for (int64_t k = 0; k < width; ++k) order.push_back(from + k);
    }
    return [this, x, places, result, from, order, origin = gather.origin] {
      b_.set_origin(origin);
      Node moved{.op = "Gather", .inputs = {x, places}, .attributes = {{"axis", from}}, .origin = origin};
      if (IsIdentity(order)) {
        moved.outputs = {result};
        graph_.AddNode(std::move(moved));
        return;
      }
      const ValueId before = b_.Op("Gather", moved.inputs, moved.attributes);
      graph_.AddNode({.op = "Transpose", .inputs = {before}, .outputs = {result}, .attributes = {{"perm", order}}, .origin = origin});
    };
  }

  GraphBuilder& b_;
  Graph& graph_;
  const GraphMatch match_;
};

}  // namespace

void FuseMoves(GraphBuilder& builder) { Fuser(builder).Run(); }

}  // namespace gradloom
