#include "compiler/passes/training_view.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/passes/region_bodies.h"
#include "compiler/passes/schedule/program_plan.h"
#include "compiler/passes/seed_random.h"
#include "compiler/passes/update/step_params.h"
#include "runtime/base/number_text.h"

namespace gradloom {
namespace {

class View {
 public:
  // `bodies`: the number of branches and loops that contain the graph; `loops`: that of loops.
  View(GraphBuilder& builder, ModelView view, int bodies, int loops)
      : b_(builder), graph_(builder.graph()), view_(view), bodies_(bodies), loops_(loops) {}

  void Run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      b_.set_origin(node.origin);
      // Constants of the enclosing graph, such as the ratio of a Dropout, must be visible in the body.
      if (!node.regions.empty()) {
        KeepStatistics(node);
        SinkConstants(graph_, node);
        const auto is_dropout = [](const Node& inner) { return inner.domain.empty() && inner.op == "Dropout"; };
        if (view_ != ModelView::kInference) SeedBodies(b_, node, is_dropout, loops_);
      }
      std::vector<Updates> updates;
      for (Region& region : node.regions) {
        GraphBuilder inner(*region.body, b_.rules());
        View view(inner, view_, bodies_ + 1, loops_ + (node.op == "Loop" ? 1 : 0));
        view.Run();
        updates.push_back(view.UpdatedInputs());
      }
      if (IsBatchNormalization(node)) {
        BatchNormalization(std::move(node));
      } else if (node.domain.empty() && node.op == "Dropout") {
        Dropout(std::move(node));
      } else if (!node.regions.empty()) {
        PushRegions(std::move(node), updates);
      } else {
        graph_.nodes.push_back(std::move(node));
      }
    }
    b_.set_origin("");
  }

 private:
  // The running statistics that a body updates, as positions of its inputs, with their last values in the body.
  using Updates = std::map<size_t, ValueId>;

  bool Trains(const Node& node) const {
    const bool written = node.attributes.Int("training_mode", 0) == 1;
    return view_ == ModelView::kTrain || (view_ == ModelView::kAsWritten && written);
  }
  static bool IsBatchNormalization(const Node& node) {
    return (node.domain.empty() || node.domain == kGradloomDomain) && node.op == "BatchNormalization";
  }

  // Returns the inputs of a body that are statistics of a BatchNormalization in training mode inside it.
  std::set<size_t> StatisticsOf(const Graph& body) const {
    std::set<ValueId> statistics;
    for (const Node& node : body.nodes) {
      if (IsBatchNormalization(node) && Trains(node)) statistics.insert({node.inputs[3], node.inputs[4]});
      for (const Region& region : node.regions) {
        for (size_t i : StatisticsOf(*region.body)) statistics.insert(node.inputs[i + 1]);
      }
    }
    std::set<size_t> inputs;
    for (size_t i = 0; i < body.inputs.size(); ++i) {
      if (statistics.contains(body.inputs[i])) inputs.insert(i);
    }
    return inputs;
  }

  // Statistics that bodies update become states.
  void KeepStatistics(const Node& node) {
    for (const Region& region : node.regions) {
      for (size_t i : StatisticsOf(*region.body)) {
        Value& value = graph_.value(node.inputs[i + 1]);
        if (bodies_ == 0 && value.role == Role::kConst && graph_.data(value.id) != nullptr) value.role = Role::kState;
      }
    }
  }

  Updates UpdatedInputs() const {
    Updates updates;
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      if (const auto found = latest_.find(graph_.inputs[i]); found != latest_.end()) updates.emplace(i, found->second);
    }
    return updates;
  }

  // Both branches of an If return the statistics that either updates. Statistics that an iteration updates become loop-carried.
  void PushRegions(Node node, const std::vector<Updates>& updates) {
    const bool loop = node.op == "Loop";
    auto carried = static_cast<size_t>(loop ? node.attributes.Int("carried", 0) : 0);
    std::set<size_t> inputs;
    for (const Updates& of : updates) {
      for (const auto& [i, latest] : of) {
        if (i >= carried) inputs.insert(i);
      }
    }
    std::vector<std::pair<ValueId, ValueId>> made;
    for (size_t i : inputs) {
      const ValueId running = node.inputs[i + 1];
      for (size_t r = 0; r < node.regions.size(); ++r) {
        Graph& body = *node.regions[r].body;
        const auto latest = updates[r].find(i);
        body.outputs.push_back(latest != updates[r].end() ? latest->second : body.inputs[i]);
        if (!loop) continue;
        const auto first = body.inputs.begin() + static_cast<std::ptrdiff_t>(carried);
        std::rotate(first, body.inputs.begin() + static_cast<std::ptrdiff_t>(i), body.inputs.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
      node.inputs[i + 1] = Latest(running);
      if (loop) {
        const auto first = node.inputs.begin() + static_cast<std::ptrdiff_t>(carried) + 1;
        std::rotate(first, node.inputs.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                    node.inputs.begin() + static_cast<std::ptrdiff_t>(i) + 2);
        ++carried;
      }
      const Value& value = graph_.value(running);
      made.emplace_back(running, graph_.AddValue(value.name + "/next", value.dtype, Shape(value.shape), Role::kActivation));
      node.outputs.push_back(made.back().second);
    }
    if (loop) node.attributes.set("carried", static_cast<int64_t>(carried));
    graph_.nodes.push_back(std::move(node));
    for (const auto& [running, next] : made) SetNext(running, next);
  }

  ValueId Latest(ValueId running) const {
    const auto updated = latest_.find(running);
    return updated != latest_.end() ? updated->second : running;
  }

  // Sets the value that later nodes read, and the next value for the next step, if the statistic is kept between steps or comes from
  // outside a body.
  void SetNext(ValueId running, ValueId next) {
    Value& statistic = graph_.value(running);
    if (bodies_ == 0) {
      const bool kept = statistic.role == Role::kConst || statistic.role == Role::kState;
      if (!kept || graph_.data(running) == nullptr) return;
      statistic.role = Role::kState;
      graph_.value(Latest(running)).next_of = kNoValue;
      graph_.value(next).next_of = running;
    }
    latest_[running] = next;
  }

  void BatchNormalization(Node node) {
    if (!Trains(node)) {
      node.attributes.set("training_mode", int64_t{0});
      // Without training, the updated statistics equal the running ones.
      for (size_t i = 1; i < std::min<size_t>(node.outputs.size(), 3); ++i) {
        if (node.outputs[i] == kNoValue) continue;
        b_.Op("Identity", {node.inputs[2 + i]});
        graph_.nodes.back().outputs[0] = node.outputs[i];
      }
      node.outputs.resize(1);
      // Every element is normalized independently, including padding.
      node.domain.clear();
      node.inputs.resize(5);
      graph_.nodes.push_back(std::move(node));
      return;
    }
    if (node.domain == kGradloomDomain) return CountedBatchNormalization(node);
    const double momentum = node.attributes.Float("momentum", 0.9);
    const std::vector<ValueId> made = b_.Ops("BatchNormTrain", kGradloomDomain, {node.inputs[0], node.inputs[1], node.inputs[2]}, 4,
                                             {{"epsilon", node.attributes.Float("epsilon", 1e-5)}});
    // Keeps the value id that the rest of the graph reads.
    graph_.nodes.back().outputs[0] = node.outputs[0];
    UpdateStatistic(node, 1, node.inputs[3], made[1], momentum);
    UpdateStatistic(node, 2, node.inputs[4], made[3], momentum);
  }

  // Computes statistics over valid elements. If there are none, the running statistics stay unchanged.
  void CountedBatchNormalization(const Node& node) {
    const ValueId counts = node.inputs[5], count = node.inputs[6];
    const DType type = b_.dtype(node.inputs[3]);
    const ValueId x = b_.Cast(node.inputs[0], type), zero = b_.Scalar(0, type);
    const Shape shape = b_.shape(x);
    std::vector<int64_t> axes, per_channel(static_cast<size_t>(shape.rank()), 1);
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (axis != 1) axes.push_back(axis);
    }
    per_channel[1] = shape[1];
    const ValueId n = b_.Cast(b_.Op("Max", {count, b_.Scalar(1, DType::kInt64)}), type);
    const auto mean_of = [&](ValueId masked) { return b_.Div(b_.ReduceSum(masked, axes, /*keepdims=*/true), n); };
    const ValueId mean = mean_of(b_.Op("Where", {counts, x, zero}));
    const ValueId centred = b_.Sub(x, mean), counted = b_.Op("Where", {counts, centred, zero});
    const ValueId variance = mean_of(b_.Mul(counted, counted));
    const ValueId deviation = b_.Op("Sqrt", {b_.Add(variance, b_.Scalar(node.attributes.Float("epsilon", 1e-5), type))});
    const auto parameter = [&](size_t i) { return b_.Reshape(b_.Cast(node.inputs[i], type), Shape(per_channel)); };
    const ValueId y = b_.Add(b_.Mul(b_.Div(centred, deviation), parameter(1)), parameter(2));
    if (b_.dtype(node.inputs[0]) != type) b_.Cast(y, b_.dtype(node.inputs[0]));
    graph_.nodes.back().outputs[0] = node.outputs[0];
    const double momentum = node.attributes.Float("momentum", 0.9);
    const ValueId any = b_.Op("Greater", {count, b_.Scalar(0, DType::kInt64)});
    UpdateStatistic(node, 1, node.inputs[3], b_.Reshape(mean, Shape{shape[1]}), momentum, any);
    UpdateStatistic(node, 2, node.inputs[4], b_.Reshape(variance, Shape{shape[1]}), momentum, any);
  }

  // Computes output `output` of the node, and the next value of `running` if it is an initializer of this graph. `any`: a bool; if false,
  // the statistic stays unchanged.
  void UpdateStatistic(const Node& node, size_t output, ValueId running, ValueId batch, double momentum, ValueId any = kNoValue) {
    const ValueId before = Latest(running);
    ValueId next = b_.Add(b_.Scale(before, momentum), b_.Scale(batch, 1 - momentum));
    if (any != kNoValue) next = b_.Op("Where", {any, next, before});
    if (output < node.outputs.size() && node.outputs[output] != kNoValue) {
      graph_.nodes.back().outputs[0] = next = node.outputs[output];
    }
    SetNext(running, next);
  }

  // Returns the value of a constant scalar operand, or `absent` if there is none.
  double ScalarOr(const Node& node, size_t i, double absent) {
    if (i >= node.inputs.size() || node.inputs[i] == kNoValue) return absent;
    const Tensor* data = graph_.data(node.inputs[i]);
    if (data == nullptr || data->elements() != 1) {
      throw Error(ErrorCode::kUnsupported, "the ratio and the mode of Dropout must be constants", Describe(node));
    }
    return ElementAsDouble(data->view(), 0);
  }

  void Dropout(Node node) {
    const double ratio = ScalarOr(node, 1, node.attributes.Float("ratio", 0.5));
    const bool written = ScalarOr(node, 2, 0) != 0;
    if (!(ratio >= 0 && ratio < 1)) {
      throw Error(ErrorCode::kValue, "the ratio of Dropout must be at least 0 and below 1, got " + NumberText(ratio), Describe(node));
    }
    const bool active = ratio > 0 && (view_ == ModelView::kTrain || (view_ == ModelView::kAsWritten && written));
    const ValueId x = node.inputs[0];
    const ValueId mask = node.outputs.size() > 1 ? node.outputs[1] : kNoValue;
    if (active) {
      const ValueId seed = StepParam(graph_, kStepSeed), batch = StepParam(graph_, kStepBatch);
      b_.Ops("Dropout", kGradloomDomain, {x, seed, batch}, mask == kNoValue ? 1 : 2,
             {{"ratio", ratio}, {"origin", OriginKey(node.origin)}});
      graph_.nodes.back().outputs[0] = node.outputs[0];
      if (mask != kNoValue) graph_.nodes.back().outputs[1] = mask;
      return;
    }
    b_.Op("Identity", {x});
    graph_.nodes.back().outputs[0] = node.outputs[0];
    if (mask == kNoValue) return;
    Tensor truth = Tensor::Scalar<bool>(true);
    b_.Op("Expand", {b_.Constant(std::move(truth)), b_.Ints(graph_.value(mask).shape.dims())});
    graph_.nodes.back().outputs[0] = mask;
  }

  GraphBuilder& b_;
  Graph& graph_;
  ModelView view_;
  int bodies_, loops_;
  std::map<ValueId, ValueId> latest_;  // the value of a running statistic after the nodes so far
};

}  // namespace

void ApplyTrainingView(GraphBuilder& builder, ModelView view) { View(builder, view, 0, 0).Run(); }

std::vector<std::string> NormsOfOneValue(const Graph& graph, int64_t batch, int64_t samples) {
  std::vector<std::string> origins;
  for (const Node& node : graph.nodes) {
    if (!node.domain.empty() || node.op != "BatchNormalization") continue;
    const Shape& x = graph.value(node.inputs[0]).shape;
    if (x.rank() > 1 && x.elements() * samples == x[1] * batch) origins.push_back(node.origin);
  }
  return origins;
}

}  // namespace gradloom
