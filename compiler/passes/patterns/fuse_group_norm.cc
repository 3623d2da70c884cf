#include "compiler/passes/patterns/fuse_group_norm.h"

#include <optional>
#include <string>
#include <vector>

#include "compiler/graph/constants.h"
#include "compiler/passes/graph_match.h"

namespace gradloom {
namespace {

struct GroupNorm {
  ValueId x = kNoValue, scale = kNoValue, bias = kNoValue;  // scale and bias: one element per channel, or absent
  int64_t groups = 0;
  double epsilon = 0;
  ValueId result = kNoValue;
  std::string origin;
};

class Fuser {
 public:
  explicit Fuser(GraphBuilder& builder) : b_(builder), graph_(builder.graph()), match_(graph_) {}

  void Run() {
    ReplaceMatches(
        graph_, match_, [&](const Node& node) { return MatchInstances(node); }, [&](const GroupNorm& norm) { Emit(norm); });
  }

 private:
  std::optional<GroupNorm> MatchInstances(const Node& node) const {
    if (node.op != "InstanceNormalization" || !node.domain.empty()) return std::nullopt;
    const Node* reshape = match_.ProducedBy(node.inputs[0], "Reshape");
    const Node* back = match_.OnlyReader(node.outputs[0]);
    if (reshape == nullptr || back == nullptr || back->op != "Reshape" || !back->domain.empty()) return std::nullopt;
    const ValueId x = reshape->inputs[0];
    const Shape whole = b_.shape(x), grouped = b_.shape(node.inputs[0]);
    if (whole.rank() < 2 || grouped.rank() != 3 || whole[0] != grouped[0] || grouped[1] < 1 || whole[1] % grouped[1] != 0)
      return std::nullopt;
    if (b_.shape(back->outputs[0]) != whole || UniformConstant(graph_, node.inputs[1]) != 1.0 ||
        UniformConstant(graph_, node.inputs[2]) != 0.0)
      return std::nullopt;
    GroupNorm norm{
        .x = x, .groups = grouped[1], .epsilon = node.attributes.Float("epsilon", 1e-5), .result = back->outputs[0], .origin = node.origin};
    norm.scale = TakeChannels(norm.result, "Mul", whole);
    norm.bias = TakeChannels(norm.result, "Add", whole);
    return norm;
  }

  // If the only reader of `result` is `op` with one number per channel of x, returns those numbers and sets `result` to the reader's
  // result.
  ValueId TakeChannels(ValueId& result, const char* op, const Shape& x) const {
    const Node* reader = match_.OnlyReader(result);
    if (reader == nullptr || reader->op != op || !reader->domain.empty() || b_.shape(reader->outputs[0]) != x) return kNoValue;
    const ValueId other = reader->inputs[reader->inputs[0] == result ? 1 : 0];
    Shape channels{x[1]};
    for (int axis = 2; axis < x.rank(); ++axis) channels.push_back(1);
    Shape given = b_.shape(other);
    if (given.rank() == x.rank() && given[0] == 1) given = Shape(std::vector<int64_t>(given.begin() + 1, given.end()));
    if (other == result || given != channels) return kNoValue;
    result = reader->outputs[0];
    return other;
  }

  void Emit(const GroupNorm& norm) {
    b_.set_origin(norm.origin);
    const ValueType channels{b_.dtype(norm.x), Shape{b_.shape(norm.x)[1]}};
    const auto vector = [&](ValueId given, double otherwise) {
      return given == kNoValue ? b_.Fill(channels, otherwise) : b_.Reshape(given, channels.shape);
    };
    Node node{.op = "GroupNormalization", .origin = norm.origin};
    node.inputs = {norm.x, vector(norm.scale, 1), vector(norm.bias, 0)};
    node.outputs = {norm.result};
    node.attributes = {{"num_groups", norm.groups}, {"epsilon", norm.epsilon}};
    graph_.AddNode(std::move(node));
  }

  GraphBuilder& b_;
  Graph& graph_;
  const GraphMatch match_;
};

}  // namespace

void FuseGroupNorm(GraphBuilder& builder) { Fuser(builder).Run(); }

}  // namespace gradloom
