#include "compiler/passes/patterns/fuse_linear.h"

#include <optional>
#include <string>
#include <vector>

#include "compiler/passes/graph_match.h"

namespace gradloom {
namespace {

struct Linear {
  ValueId x = kNoValue, w = kNoValue, bias = kNoValue;
  bool transposed = false;  // w is [out, in]
  ValueId result = kNoValue;
  std::string origin;
};

class Fuser {
 public:
  explicit Fuser(GraphBuilder& builder) : b_(builder), graph_(builder.graph()), match_(graph_) {}

  void Run() {
    ReplaceMatches(
        graph_, match_, [&](const Node& node) { return MatchProduct(node); }, [&](const Linear& linear) { Emit(linear); });
  }

 private:
  std::optional<Linear> MatchProduct(const Node& product) const {
    if (product.op != "MatMul" || !product.domain.empty()) return std::nullopt;
    Linear linear{.x = product.inputs[0], .w = product.inputs[1], .result = product.outputs[0], .origin = product.origin};
    const Shape y = b_.shape(linear.result);
    if (b_.shape(linear.x).rank() < 2 || b_.shape(linear.w).rank() != 2 || y.elements() == 0 || !IsFloating(b_.dtype(linear.x))) {
      return std::nullopt;
    }
    if (const Node* transpose = match_.ProducedBy(linear.w, "Transpose")) {
      linear.w = transpose->inputs[0];
      linear.transposed = transpose->attributes.Ints("perm", {1, 0}) == std::vector<int64_t>{1, 0};
      if (!linear.transposed) return std::nullopt;
    }
    const Node* add = match_.OnlyReader(linear.result);
    if (add != nullptr && add->op == "Add" && add->domain.empty()) {
      const ValueId other = add->inputs[add->inputs[0] == linear.result ? 1 : 0];
      if (b_.shape(other) == Shape{y[y.rank() - 1]}) {
        linear.bias = other;
        linear.result = add->outputs[0];
      }
    }
    if (!linear.transposed && linear.bias == kNoValue) return std::nullopt;
    return linear;
  }

  // Adds the nodes that compute the result, which keeps its name.
  void Emit(const Linear& linear) {
    b_.set_origin(linear.origin);
    const Shape x = b_.shape(linear.x), y = b_.shape(linear.result);
    const bool matrix = x.rank() == 2;
    const int64_t in = x[x.rank() - 1], out = y[y.rank() - 1];
    Node node{.op = "Gemm", .origin = linear.origin};
    node.inputs = {matrix ? linear.x : b_.Reshape(linear.x, {y.elements() / out, in}), linear.w};
    if (linear.bias != kNoValue) node.inputs.push_back(linear.bias);
    if (linear.transposed) node.attributes.set("transB", int64_t{1});
    const ValueId rows =
        matrix ? linear.result
               : graph_.AddValue(linear.origin + "/rows", b_.dtype(linear.result), {y.elements() / out, out}, Role::kActivation);
    node.outputs = {rows};
    graph_.AddNode(std::move(node));
    if (matrix) return;
    const ValueId shape = b_.Ints(y.dims());
    graph_.AddNode({.op = "Reshape", .inputs = {rows, shape}, .outputs = {linear.result}, .origin = linear.origin});
  }

  GraphBuilder& b_;
  Graph& graph_;
  const GraphMatch match_;
};

}  // namespace

void FuseLinear(GraphBuilder& builder) { Fuser(builder).Run(); }

}  // namespace gradloom
