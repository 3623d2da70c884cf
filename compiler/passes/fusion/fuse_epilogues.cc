#include "compiler/passes/fusion/fuse_epilogues.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/constants.h"
#include "compiler/passes/patterns/fuse_gelu.h"
#include "compiler/passes/position_rewriter.h"
#include "compiler/passes/schedule/node_order.h"

namespace gradloom {
namespace {

class Fuser : public PositionRewriter {
 public:
  explicit Fuser(GraphBuilder& builder) : PositionRewriter(builder) {}

  void Run() {
    Visit(&Fuser::VisitActivation);
    Visit(&Fuser::VisitGeluGradient);
    Visit(&Fuser::VisitBiasGradient);
  }

 private:
  // Returns the value that `id` is a chain of views of.
  ValueId Viewed(ValueId id) const {
    for (int at; (at = match_->Producer(id)) >= 0 && IsView(NodeAt(at));) id = NodeAt(at).inputs[0];
    return id;
  }

  // Like Viewed, but returns kNoValue if another node reads a value of the chain.
  ValueId ViewedAlone(ValueId id) const {
    for (int at; (at = match_->Producer(id)) >= 0 && IsView(NodeAt(at)); id = NodeAt(at).inputs[0]) {
      if (match_->OnlyReader(NodeAt(at).inputs[0]) == nullptr) return kNoValue;
    }
    return id;
  }

  // Returns the position of the Gemm that computes a value, if no other fusion has taken it and an epilogue can follow: it computes a b, at
  // most plus a row, in an element type for which cuBLASLt has epilogues. Otherwise -1.
  int GemmOf(ValueId id) const {
    const int at = match_->Producer(id);
    if (at < 0 || replaced_.contains(at)) return -1;
    const Node& node = NodeAt(at);
    if (node.op != "Gemm" || !node.domain.empty() || node.attributes.Float("alpha", 1) != 1 || node.attributes.Float("beta", 1) != 1)
      return -1;
    const Value& value = graph_.value(node.outputs[0]);
    if ((value.dtype != DType::kFloat32 && !Is16BitFloat(value.dtype)) || value.shape.elements() == 0) return -1;
    const bool has_row = HasRow(node);
    if (has_row && graph_.value(node.inputs[2]).shape != Shape{value.shape[1]}) return -1;
    const Shape& a = graph_.value(node.inputs[0]).shape;
    return a.elements() == 0 ? -1 : at;
  }
  static bool HasRow(const Node& gemm) { return gemm.inputs.size() > 2 && gemm.inputs[2] != kNoValue; }

  // Returns a product with an epilogue that replaces a Gemm.
  Node Form(const Node& gemm, const char* op) const {
    Node node{.op = op, .domain = std::string(kGradloomDomain), .inputs = gemm.inputs, .outputs = {}, .attributes = gemm.attributes};
    for (const char* factor : {"alpha", "beta"}) node.attributes.erase(factor);
    node.phase = gemm.phase;
    node.origin = gemm.origin;
    return node;
  }

  // Appends the node with outputs of these shapes, and views that give them the shapes of the values that they replace.
  void Add(Node form, const std::vector<ValueId>& values, const std::vector<Shape>& shapes) {
    std::vector<Node> views;
    for (size_t k = 0; k < values.size(); ++k) {
      form.outputs.push_back(values[k]);
      if (b_.shape(values[k]) == shapes[k]) continue;
      const Value value = graph_.value(values[k]);
      form.outputs[k] = graph_.AddValue(form.origin + "/matrix", value.dtype, shapes[k], value.role);
      views.push_back({.op = "Reshape", .inputs = {form.outputs[k], b_.Ints(value.shape.dims())}, .outputs = {value.id}});
      views.back().phase = form.phase;
      views.back().origin = form.origin;
    }
    graph_.AddNode(std::move(form));
    for (Node& view : views) graph_.AddNode(std::move(view));
  }

  void VisitActivation(int at) {
    const Node& node = NodeAt(at);
    if (!node.domain.empty()) return;
    if (node.op == "Relu") VisitRelu(at);
    if (node.op == "Gelu" && node.attributes.String("approximate", "none") == "tanh") VisitGelu(at);
  }

  // The ReLU is removed; nothing else may read its operand.
  void VisitRelu(int at) {
    const Node& node = NodeAt(at);
    const ValueId x = ViewedAlone(node.inputs[0]);
    const int gemm = GemmOf(x);
    if (gemm < 0 || match_->OnlyReader(x) == nullptr || match_->OnlyReader(node.inputs[0]) == nullptr) return;
    Replace(gemm, "GemmRelu", {node.outputs[0]}, b_.shape(x));
    Remove(at);
  }

  // The operand of the GELU is kept. A GELU that the file computes in float32 has a cast before it and one after it; the result of the
  // latter is computed instead.
  void VisitGelu(int at) {
    const ValueId x = Viewed(Lowered(Viewed(NodeAt(at).inputs[0])));
    ValueId y = NodeAt(at).outputs[0];
    const int gemm = GemmOf(x);
    if (gemm < 0 || !Is16BitFloat(b_.dtype(x)) || b_.shape(x)[1] % 8 != 0) return;
    std::vector<int> gone = {at};
    while (b_.dtype(y) != b_.dtype(x)) {
      const Node* const reader = match_->OnlyReader(y);
      if (reader == nullptr || !(IsView(*reader) || (reader->op == "Cast" && b_.dtype(reader->outputs[0]) == b_.dtype(x)))) return;
      y = reader->outputs[0];
      gone.push_back(match_->Producer(y));
    }
    Replace(gemm, "GemmGelu", {y, x}, b_.shape(x));
    for (int position : gone) Remove(position);
    operands_.push_back(x);
  }

  // Returns the operand of a cast from 16 bits, otherwise the value itself.
  ValueId Lowered(ValueId id) const {
    const int at = match_->Producer(id);
    return at >= 0 && NodeAt(at).op == "Cast" && Is16BitFloat(b_.dtype(NodeAt(at).inputs[0])) ? NodeAt(at).inputs[0] : id;
  }

  // The new node takes the place of the Gemm, because its result may be read before the activation.
  void Replace(int gemm, const char* op, const std::vector<ValueId>& values, const Shape& matrix) {
    const Node form = Form(NodeAt(gemm), op);
    replaced_.emplace(gemm, [this, form, values, matrix] { Add(form, values, {matrix, matrix}); });
  }

  // Returns the position of the ReduceSum that sums the columns of a value viewed as this matrix, however it is written; otherwise -1.
  int SumOfColumns(ValueId id, const Shape& matrix) const {
    std::vector<ValueId> same = {Viewed(id)};
    for (size_t i = 0; i < same.size(); ++i) {
      for (int reader : match_->uses().consumers[static_cast<size_t>(same[i])]) {
        const Node& node = NodeAt(reader);
        if (node.inputs[0] != same[i]) continue;
        if (IsView(node)) same.push_back(node.outputs[0]);
        if (node.op == "ReduceSum" && node.domain.empty() && !replaced_.contains(reader) && SumsColumns(node, matrix)) return reader;
      }
    }
    return -1;
  }

  // Whether all axes except the last are summed, and the last is a row of the matrix.
  bool SumsColumns(const Node& sum, const Shape& matrix) const {
    const Shape& summed = graph_.value(sum.inputs[0]).shape;
    if (matrix.rank() != 2) return false;
    if (summed.rank() < 2 || summed[summed.rank() - 1] != matrix[1]) return false;
    const auto axes = ConstantInts(graph_, sum, 1);
    if (!axes || static_cast<int>(axes->size()) != summed.rank() - 1) return false;
    return std::none_of(axes->begin(), axes->end(), [&](int64_t axis) { return axis == summed.rank() - 1 || axis == -1; });
  }

  // Matches products of the backward phase that are only used in the derivative of a GELU.
  void VisitGeluGradient(int at) {
    const Node& gemm = NodeAt(at);
    if (gemm.op != "Gemm" || gemm.phase != Phase::kBackward || GemmOf(gemm.outputs[0]) != at || HasRow(gemm)) return;
    const ValueId g = gemm.outputs[0];
    const Shape matrix = b_.shape(gemm.outputs[0]);
    for (ValueId x : operands_) {
      if (b_.shape(x) != matrix || b_.dtype(x) != b_.dtype(g)) continue;
      const auto found = FindGeluGradient(graph_, match_->uses(), x, g);
      if (!found) continue;
      Node form = Form(gemm, "GemmGeluGrad");
      form.inputs.resize(2);
      form.inputs.push_back(x);
      std::vector<ValueId> values = {found->value};
      const int sum = SumOfColumns(found->value, matrix);
      if (sum >= 0) {
        values.push_back(NodeAt(sum).outputs[0]);
        Remove(sum);
      }
      replaced_.emplace(*found->nodes.rbegin(), [this, form, values, matrix] { Add(form, values, {matrix, {matrix[1]}}); });
      return;
    }
  }

  void VisitBiasGradient(int at) {
    const Node& gemm = NodeAt(at);
    if (gemm.op != "Gemm" || gemm.phase != Phase::kBackward || GemmOf(gemm.outputs[0]) != at || HasRow(gemm)) return;
    for (int operand : {0, 1}) {
      // The contracted axis must be the first axis of the operand.
      const bool transposed = gemm.attributes.Int(operand == 0 ? "transA" : "transB", 0) != 0;
      if (transposed != (operand == 0)) continue;
      const Shape summed = b_.shape(gemm.inputs[static_cast<size_t>(operand)]), matrix = b_.shape(gemm.outputs[0]);
      const int sum = SumOfColumns(gemm.inputs[static_cast<size_t>(operand)], summed);
      if (sum < 0 || ReadBefore(NodeAt(sum).outputs[0], at)) continue;
      Node form = Form(gemm, "GemmBiasGrad");
      form.inputs.resize(2);
      form.attributes.set("summed", int64_t{operand});
      const std::vector<ValueId> values = {gemm.outputs[0], NodeAt(sum).outputs[0]};
      replaced_.emplace(at, [this, form, values, summed, matrix] { Add(form, values, {matrix, {summed[1]}}); });
      Remove(sum);
      return;
    }
  }

  bool ReadBefore(ValueId id, int at) const {
    const std::vector<int>& readers = match_->uses().consumers[static_cast<size_t>(id)];
    return std::any_of(readers.begin(), readers.end(), [&](int reader) { return reader < at; });
  }

  std::vector<ValueId> operands_;  // of GELUs, as matrices
};

}  // namespace

void FuseEpilogues(GraphBuilder& builder) { Fuser(builder).Run(); }

}  // namespace gradloom
