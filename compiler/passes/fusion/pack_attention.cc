#include "compiler/passes/fusion/pack_attention.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/passes/fusion/strided_view.h"
#include "compiler/passes/graph_match.h"
#include "compiler/passes/schedule/choose_kernels.h"
#include "runtime/base/attention_form.h"

namespace gradloom {
namespace {

using enum attention::Input;

constexpr std::array<size_t, 3> kParts = {kQ, kK, kV};
// Exporters write up to eight nodes that only move elements between a product and an attention. The positions on the paths of Q, K and V
// are combined.
constexpr size_t kLongestPath = 16;

bool IsForward(const Node& node) {
  return (node.op == "Attention" && node.domain.empty()) || (node.op == "AttentionDropout" && node.domain == kGradloomDomain);
}
bool IsGradient(const Node& node) {
  return (node.op == "AttentionGrad" || node.op == "AttentionDropoutGrad") && node.domain == kGradloomDomain;
}

// A value and those that it is moved from, or to, one after the other.
struct Path {
  std::vector<ValueId> values;
  std::vector<int> nodes;  // positions; nodes[i] is between values[i] and values[i + 1]

  // The index of a value, or -1.
  int Find(ValueId id) const {
    const auto at = std::find(values.begin(), values.end(), id);
    return at == values.end() ? -1 : static_cast<int>(at - values.begin());
  }
};
using Paths = std::array<Path, 3>;  // of Q, K and V, or of their gradients

// The last value of all three paths, or of those of K and V, and views of the first values in it.
struct Whole {
  ValueId value = kNoValue;
  ValueId q = kNoValue;              // the last value of the path of Q, if that is another one
  std::array<StridedView, 3> parts;  // [batch, heads, length, size]

  bool has_own_q() const { return q != kNoValue; }
  // The operands of the packed form, or their gradients.
  std::vector<ValueId> operands() const { return has_own_q() ? std::vector{q, value} : std::vector{value}; }
};

// A node in the packed form.
struct Packed {
  int position = -1;
  Node node;                       // of the forward pass or of the gradient, without Y, its gradient and those of Q, K and V
  ValueId y = kNoValue;            // Y, or the value to which it is transposed
  int y_reader = -1;               // the position of this transposition
  ValueId y_gradient = kNoValue;   // the gradient of Y, or the value that it is a transposition of
  std::vector<ValueId> operands;   // that have Q, K and V
  std::vector<ValueId> gradients;  // of these operands; none in the forward pass
  Shape y_shape;
  std::set<int> moves;      // positions of the nodes between the packed value and Q, K and V
  std::set<ValueId> moved;  // and their results
};

class Packer {
 public:
  Packer(GraphBuilder& builder, DeviceKind device, int threads) : b_(builder), graph_(builder.graph()), match_(graph_), uses_(graph_) {
    plan_.device = device;
    plan_.threads = threads;
  }

  void Run() {
    std::map<int, Packed> all;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (auto packed = PackedFormOf(static_cast<int>(i))) all.emplace(static_cast<int>(i), *std::move(packed));
    }
    while (RemoveUseless(all)) {
    }
    std::map<int, std::function<void()>> by_position;
    for (const auto& [position, packed] : all) {
      by_position.emplace(position, [this, &packed = packed] { Emit(packed); });
      if (packed.y_reader >= 0) by_position.emplace(packed.y_reader, [] {});
      // The nodes that made the gradients from those of Q, K and V.
      for (ValueId id : packed.gradients) by_position.emplace(match_.Producer(id), [] {});
    }
    ReplaceNodes(graph_, by_position);
  }

 private:
  const Node& NodeAt(int position) const { return graph_.nodes[static_cast<size_t>(position)]; }

  // The only reader of a value that is not kept; -1 if there is none, or several.
  int OnlyReader(ValueId id) const { return match_.OnlyReader(id) == nullptr ? -1 : uses_.consumers[static_cast<size_t>(id)].front(); }

  // The values from which an operand is moved.
  Path PathFrom(ValueId id) const {
    Path path{{id}, {}};
    for (int at; path.nodes.size() < kLongestPath && (at = match_.Producer(path.values.back())) >= 0;) {
      const Node& node = NodeAt(at);
      if (node.inputs.empty() || node.inputs[0] == kNoValue || !node.regions.empty()) break;
      // Whether the node only moves elements is seen when the views are computed.
      if (!OutputView(graph_, node, OutputIndex(node, path.values.back()), ViewOf(b_.shape(node.inputs[0])))) break;
      path.nodes.push_back(at);
      path.values.push_back(node.inputs[0]);
    }
    return path;
  }

  // The values to which a gradient is moved, each read by nothing else.
  Path PathTo(ValueId id) const {
    Path path{{id}, {}};
    for (int at; path.nodes.size() < kLongestPath && (at = OnlyReader(path.values.back())) >= 0;) {
      const Node& node = NodeAt(at);
      if (std::count(node.inputs.begin(), node.inputs.end(), path.values.back()) != 1 || node.outputs.size() != 1) break;
      if (!InputView(graph_, node, InputIndex(node, path.values.back()), ViewOf(b_.shape(node.outputs[0])))) break;
      path.nodes.push_back(at);
      path.values.push_back(node.outputs[0]);
    }
    return path;
  }

  static size_t OutputIndex(const Node& node, ValueId id) {
    return static_cast<size_t>(std::find(node.outputs.begin(), node.outputs.end(), id) - node.outputs.begin());
  }
  static size_t InputIndex(const Node& node, ValueId id) {
    return static_cast<size_t>(std::find(node.inputs.begin(), node.inputs.end(), id) - node.inputs.begin());
  }

  // The first value of a path as a view of value `end`; `back`: the path follows gradients.
  std::optional<StridedView> ViewAlong(const Path& path, int end, bool back) const {
    std::optional<StridedView> view = ViewOf(b_.shape(path.values[static_cast<size_t>(end)]));
    for (size_t i = static_cast<size_t>(end); i-- > 0 && view;) {
      const Node& node = NodeAt(path.nodes[i]);
      view = back ? InputView(graph_, node, InputIndex(node, path.values[i]), *view)
                  : OutputView(graph_, node, OutputIndex(node, path.values[i]), *view);
    }
    return view;
  }

  // A view of an operand of this shape, [batch, length, heads * size] or [batch, heads, length, size], in the latter form.
  static std::optional<StridedView> ByHeads(const StridedView& view, const Shape& shape, int64_t heads) {
    if (shape.rank() == 4) return view;
    const auto split = Reshaped(view, {shape[0], shape[1], heads, shape[2] / heads});
    return split ? std::optional(Transposed(*split, {0, 2, 1, 3})) : std::nullopt;
  }

  // The view of the first value of a path in value `end`, by heads.
  std::optional<StridedView> PartOf(const Node& node, const Paths& paths, size_t part, int end, bool back) const {
    const auto view = end < 0 ? std::nullopt : ViewAlong(paths[part], end, back);
    if (!view) return std::nullopt;
    return ByHeads(*view, b_.shape(paths[part].values[0]), node.attributes.Int(part == kQ ? "q_num_heads" : "kv_num_heads", 0));
  }

  // The values that all three paths lead to, the last one first, and then those that the paths of K and V lead to.
  std::vector<Whole> WholesOf(const Node& node, const Paths& paths, bool back) const {
    std::vector<Whole> wholes;
    for (size_t first : {kQ, kK}) {
      for (size_t i = paths[first].values.size(); i-- > 1;) {
        Whole whole{.value = paths[first].values[i]};
        bool fits = true;
        for (size_t part = first; part <= kV && fits; ++part) {
          const int end = paths[part].Find(whole.value);
          auto view = end > 0 ? PartOf(node, paths, part, end, back) : std::nullopt;
          fits = view.has_value();
          if (fits) whole.parts[part] = *std::move(view);
        }
        if (fits && first == kQ) wholes.push_back(whole);
        for (size_t j = paths[kQ].values.size(); fits && first != kQ && j-- > 0;) {
          auto view = PartOf(node, paths, kQ, static_cast<int>(j), back);
          if (!view) continue;
          whole.q = paths[kQ].values[j];
          whole.parts[kQ] = *std::move(view);
          wholes.push_back(whole);
        }
      }
    }
    return wholes;
  }

  static bool SameVectors(const StridedView& view, const AttentionVectors& vectors) {
    const std::array<int64_t, 4> strides{vectors.sample_stride, vectors.head_stride, vectors.stride, 1};
    for (size_t i = 0; i < strides.size(); ++i) {
      const std::vector<StridedRun>& axis = view.axes[i];
      if (axis.size() > 1 || (axis.size() == 1 && axis[0].stride != strides[i])) return false;
    }
    return view.first == vectors.first;
  }

  // The packed form with these attributes of operands or gradients.
  std::optional<AttentionForm> FormOf(const std::vector<ValueId>& operands, const Attributes& attributes) const {
    return AttentionForm::Packed(attributes, b_.shape(operands.front()).elements(), b_.shape(operands.back()).elements());
  }

  // Whether the parts of a value are those of the packed form with these attributes.
  bool HasForm(const Whole& whole, const Attributes& attributes) const {
    if (whole.has_own_q() != (AttentionForm::PackingOf(attributes) == AttentionForm::Packing::kKeysAndValues)) return false;
    const auto form = FormOf(whole.operands(), attributes);
    return form && SameVectors(whole.parts[kQ], form->q) && SameVectors(whole.parts[kK], form->k) && SameVectors(whole.parts[kV], form->v);
  }

  // The attributes of the packed form for each order of the axes that the parts of a value have: several if some extents are 1.
  std::vector<Attributes> FormsOf(const Whole& whole, Attributes attributes) const {
    constexpr std::array<const char*, 3> kShapes = {"q_shape", "k_shape", "v_shape"};
    for (size_t part : kParts) {
      std::vector<int64_t> shape;
      for (size_t axis = 0; axis < 4; ++axis) shape.push_back(whole.parts[part].Extent(axis));
      attributes.set(kShapes[part], std::move(shape));
    }
    attributes.set("y_order", std::string("BHTE"));
    attributes.erase("q_num_heads");
    attributes.erase("kv_num_heads");
    std::vector<Attributes> forms;
    std::string outer = "BHPT";
    do {
      attributes.set("packed", outer + "E");
      std::string of_q = "BHT";
      do {
        if (whole.has_own_q()) attributes.set("q_order", of_q + "E");
        if (HasForm(whole, attributes)) forms.push_back(attributes);
      } while (whole.has_own_q() && std::next_permutation(of_q.begin(), of_q.end()));
    } while (std::next_permutation(outer.begin(), outer.end()));
    return forms;
  }

  std::optional<Packed> PackedFormOf(int position) const {
    const Node& node = NodeAt(position);
    const bool gradient = IsGradient(node);
    if ((!gradient && !IsForward(node)) || node.inputs.size() < 3) return std::nullopt;
    const auto has = [&](size_t i) { return i < node.inputs.size() && node.inputs[i] != kNoValue; };
    if (has(kPastKey) || has(kPastValue) || (gradient && !has(kGradY))) return std::nullopt;
    Paths paths, gradient_paths;
    for (size_t part : kParts) paths[part] = PathFrom(node.inputs[part]);
    const std::vector<int64_t> wanted = node.attributes.Ints("wanted");
    for (size_t part : kParts) {
      if (!gradient) continue;
      const auto at = std::find(wanted.begin(), wanted.end(), static_cast<int64_t>(part));
      if (at == wanted.end()) return std::nullopt;
      gradient_paths[part] = PathTo(node.outputs[static_cast<size_t>(at - wanted.begin())]);
    }
    const std::vector<Whole> gradients = gradient ? WholesOf(node, gradient_paths, true) : std::vector<Whole>{};
    for (const Whole& whole : WholesOf(node, paths, false)) {
      for (Attributes& form : FormsOf(whole, node.attributes)) {
        const auto back = std::find_if(gradients.begin(), gradients.end(), [&](const Whole& w) { return HasForm(w, form); });
        if (gradient && back == gradients.end()) continue;
        Packed packed{.position = position, .node = node};
        SetForm(packed, whole, std::move(form), paths);
        if (gradient) SetGradients(packed, *back);
        if (HasKernel(packed)) return packed;
      }
    }
    return std::nullopt;
  }

  void SetForm(Packed& packed, const Whole& whole, Attributes form, const Paths& paths) const {
    for (size_t part : kParts) {
      const Path& path = paths[part];
      const auto end = static_cast<std::ptrdiff_t>(path.Find(part == kQ && whole.has_own_q() ? whole.q : whole.value));
      packed.moves.insert(path.nodes.begin(), path.nodes.begin() + end);
      packed.moved.insert(path.values.begin(), path.values.begin() + end);
    }
    packed.operands = whole.operands();
    SetY(packed, form);
    packed.y_shape = FormOf(packed.operands, form)->y_shape();
    for (size_t part : kParts) packed.node.inputs[part] = part < packed.operands.size() ? packed.operands[part] : kNoValue;
    packed.node.domain = kGradloomDomain;
    packed.node.attributes = std::move(form);
  }

  // Chooses the order of Y, or of its gradient.
  void SetY(Packed& packed, Attributes& form) const {
    const bool gradient = IsGradient(packed.node);
    const ValueId y = gradient ? packed.node.inputs[kGradY] : packed.node.outputs[0];
    (gradient ? packed.y_gradient : packed.y) = y;
    if (b_.shape(y).rank() == 3) return form.set("y_order", std::string("BTHE"));
    const int at = gradient ? match_.Producer(y) : OnlyReader(y);
    if (at < 0 || NodeAt(at).op != "Transpose" || !NodeAt(at).domain.empty() || (gradient && OnlyReader(y) < 0)) return;
    const Node& transpose = NodeAt(at);
    const std::vector<int64_t> perm = transpose.attributes.Ints("perm");
    if (perm.size() != 4 || perm[3] != 3) return;
    // Axis i of the result is axis perm[i] of the operand.
    constexpr std::string_view kAxes = "BHTE";
    std::string order(kAxes);
    for (size_t i = 0; i < perm.size(); ++i) {
      const auto axis = static_cast<size_t>(perm[i]);
      (gradient ? order[axis] : order[i]) = gradient ? kAxes[i] : kAxes[axis];
    }
    form.set("y_order", order);
    if (gradient) {
      packed.y_gradient = transpose.inputs[0];
    } else {
      packed.y = transpose.outputs[0];
      packed.y_reader = at;
    }
  }

  // Replaces the gradients of Q, K and V by those of the operands. That of a mask stays.
  void SetGradients(Packed& packed, const Whole& gradients) const {
    packed.gradients = gradients.operands();
    const std::vector<int64_t> wanted = packed.node.attributes.Ints("wanted");
    std::vector<int64_t> kept;
    std::vector<ValueId> outputs;
    for (size_t i = 0; i < packed.gradients.size(); ++i) {
      kept.push_back(static_cast<int64_t>(i));
      outputs.push_back(kNoValue);
    }
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i] <= static_cast<int64_t>(kV)) continue;
      kept.push_back(wanted[i]);
      outputs.push_back(packed.node.outputs[i]);
    }
    packed.node.attributes.set("wanted", kept);
    packed.node.outputs = outputs;
  }

  // Whether the same kernel computes the node in both forms.
  bool HasKernel(const Packed& packed) const {
    const KernelCall call = CallOf(graph_, NodeAt(packed.position), plan_);
    KernelCall made = call;
    made.op = packed.node.op;
    made.domain = packed.node.domain;
    made.attributes = packed.node.attributes;
    for (size_t part : kParts) {
      made.inputs[part] =
          part < packed.operands.size() ? OperandType{call.inputs[kQ].dtype, b_.shape(packed.operands[part]), {}} : OperandType{};
    }
    if (packed.gradients.empty()) {
      made.outputs[0].shape = packed.y_shape;
    } else {
      made.inputs[kGradY].shape = packed.y_shape;
      made.outputs.clear();
      for (size_t i = 0; i < packed.node.outputs.size(); ++i) {
        const ValueId id = i < packed.operands.size() ? packed.operands[i] : packed.node.outputs[i];
        made.outputs.push_back(id == kNoValue ? OperandType{} : OperandType{b_.dtype(id), b_.shape(id), {}});
      }
    }
    const KernelRow *const own = ChooseKernel(plan_.device, call), *const row = ChooseKernel(plan_.device, made);
    return own != nullptr && row != nullptr && FamilyOf(*own) == FamilyOf(*row);
  }

  // Removes nodes whose Q, K or V, or other parts, must be made for another reader. Returns whether there was one.
  bool RemoveUseless(std::map<int, Packed>& all) const {
    std::set<int> moves;
    std::set<ValueId> moved;
    for (const auto& [position, packed] : all) {
      moves.insert(packed.moves.begin(), packed.moves.end());
      moved.insert(packed.moved.begin(), packed.moved.end());
    }
    const auto needed = [&](ValueId id) {
      if (id == kNoValue) return false;
      const std::vector<int>& readers = uses_.consumers[static_cast<size_t>(id)];
      if (match_.IsKept(id) || (!moved.contains(id) && !readers.empty())) return true;
      return std::any_of(readers.begin(), readers.end(), [&](int reader) {
        if (moves.contains(reader)) return false;
        const std::vector<ValueId>& inputs = NodeAt(reader).inputs;
        return !all.contains(reader) || std::find(inputs.begin() + kMask, inputs.end(), id) != inputs.end();
      });
    };
    const size_t before = all.size();
    std::erase_if(all, [&](const auto& each) {
      return std::any_of(each.second.moves.begin(), each.second.moves.end(), [&](int at) {
        const std::vector<ValueId>& outputs = NodeAt(at).outputs;
        return std::any_of(outputs.begin(), outputs.end(), needed);
      });
    });
    return all.size() < before;
  }

  // Adds a reshape of `from` that makes `to`, after or before the node of attention.
  void AddReshape(const Node& like, ValueId from, ValueId to) {
    Node view{.op = "Reshape", .inputs = {from, b_.Ints(b_.shape(to).dims())}, .outputs = {to}, .phase = like.phase};
    view.origin = like.origin;
    graph_.AddNode(std::move(view));
  }

  // Returns `id` if it has this shape, and otherwise a new value that is reshaped to it, or from it.
  ValueId InShape(ValueId id, const Shape& shape) {
    if (b_.shape(id) == shape) return id;
    const Value value = graph_.value(id);
    return graph_.AddValue(value.name + "/by_heads", value.dtype, shape, value.role);
  }

  void Emit(const Packed& packed) {
    Node node = packed.node;
    std::vector<ValueId> results = packed.gradients;
    if (results.empty()) {
      results = {packed.y};
      node.outputs[0] = InShape(packed.y, packed.y_shape);
    } else {
      node.inputs[kGradY] = InShape(packed.y_gradient, packed.y_shape);
      if (node.inputs[kGradY] != packed.y_gradient) AddReshape(node, packed.y_gradient, node.inputs[kGradY]);
      for (size_t i = 0; i < results.size(); ++i) node.outputs[i] = InShape(results[i], b_.shape(packed.operands[i]));
    }
    graph_.AddNode(node);
    for (size_t i = 0; i < results.size(); ++i) {
      if (node.outputs[i] != results[i]) AddReshape(node, node.outputs[i], results[i]);
    }
  }

  GraphBuilder& b_;
  Graph& graph_;
  const GraphMatch match_;
  const Uses uses_;
  ProgramPlan plan_;
};

}  // namespace

void PackAttention(GraphBuilder& builder, DeviceKind device, int threads) { Packer(builder, device, threads).Run(); }

}  // namespace gradloom
