#include "compiler/onnx/export/annotate_devices.h"

#include <algorithm>
#include <set>
#include <vector>

#include "compiler/onnx/node_names.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr char kConfiguration[] = "gradloom";
// The first IR version with device configurations.
constexpr int kMinIrVersion = 11;

class Annotator {
 public:
  Annotator(const DevicePlacement& placement, onnx::ModelProto& model)
      : placement_(placement), graph_(*model.mutable_graph()), model_(model) {}

  void Run() {
    model_.clear_configuration();
    auto& configuration = *model_.add_configuration();
    configuration.set_name(kConfiguration);
    configuration.set_num_devices(placement_.devices);
    for (int i = 0; i < placement_.devices; ++i) configuration.add_device(placement_.device + ":" + std::to_string(i));
    model_.set_ir_version(std::max<int64_t>(model_.ir_version(), kMinIrVersion));
    FindStages();
    for (const auto& tensor : graph_.initializer()) weights_.insert(tensor.name());
    for (const auto& tensor : graph_.sparse_initializer()) weights_.insert(tensor.values().name());
    for (int i = 0; i < graph_.node_size(); ++i) Annotate(*graph_.mutable_node(i), stages_[static_cast<size_t>(i)]);
  }

 private:
  static constexpr int kUnplaced = -1;

  void FindStages() {
    NodeNames names;
    std::map<std::string, int> made, read;  // by value: the stage that produces it, and the first stage that reads it
    for (const auto& node : graph_.node()) {
      int stage = Named(node, names.Next(node));
      if (stage == kUnplaced) stage = ByOperands(node, made);
      stages_.push_back(stage);
      for (const std::string& output : node.output()) made[output] = stage;
    }
    for (int i = graph_.node_size(); i-- > 0;) {
      const onnx::NodeProto& node = graph_.node(i);
      int& stage = stages_[static_cast<size_t>(i)];
      for (const std::string& output : node.output()) {
        const auto reader = read.find(output);
        if (stage == kUnplaced && reader != read.end()) stage = reader->second;
      }
      stage = std::max(stage, 0);
      for (const std::string& input : node.input()) read[input] = stage;
    }
  }

  static int ByOperands(const onnx::NodeProto& node, const std::map<std::string, int>& made) {
    int stage = kUnplaced;
    for (const std::string& input : node.input()) {
      if (const auto found = made.find(input); found != made.end()) stage = std::max(stage, found->second);
    }
    return stage;
  }

  // Returns the stage that the placement gives for the node, or for all nodes inside it.
  int Named(const onnx::NodeProto& node, const std::string& name) const {
    if (const auto found = placement_.of_node.find(name); found != placement_.of_node.end()) return found->second;
    const std::string path = name + "/";
    std::set<int> stages;
    for (auto at = placement_.of_node.lower_bound(path); at != placement_.of_node.end() && at->first.starts_with(path); ++at)
      stages.insert(at->second);
    if (stages.size() < 2) return stages.empty() ? kUnplaced : *stages.begin();
    throw Error(ErrorCode::kUnsupported, "parts of one node are on different devices, but an annotation applies to the whole node",
                node.op_type() + " '" + Escaped(name) + "'",
                "inline the functions of the model (onnx.inliner) before placing it on devices");
  }

  void Annotate(onnx::NodeProto& node, int stage) {
    node.clear_device_configurations();
    auto& configuration = *node.add_device_configurations();
    configuration.set_configuration_id(kConfiguration);
    if (placement_.stages > 1) configuration.set_pipeline_stage(stage);
    std::set<std::string> told;
    for (const auto* names : {&node.input(), &node.output()}) {
      for (const std::string& name : *names) {
        const bool is_weight = weights_.contains(name), is_divided = placement_.batch_axes.contains(name);
        if (name.empty() || (!is_weight && !is_divided) || !told.insert(name).second) continue;
        auto& spec = *configuration.add_sharding_spec();
        spec.set_tensor_name(name);
        for (int device = stage; device < placement_.devices; device += placement_.stages) spec.add_device(device);
        if (is_divided) Divide(name, spec);
      }
    }
  }

  // Shards the tensor by samples over the replicas of the model.
  void Divide(const std::string& name, onnx::ShardingSpecProto& spec) const {
    const int axis = placement_.batch_axes.at(name);
    auto& dim = *spec.add_sharded_dim();
    dim.set_axis(axis);
    auto& sharding = *dim.add_simple_sharding();
    sharding.set_num_shards(placement_.devices / placement_.stages);
    for (const auto* infos : {&graph_.input(), &graph_.output()}) {
      for (const auto& info : *infos) {
        const auto& shape = info.type().tensor_type().shape();
        if (info.name() != name || axis >= shape.dim_size()) continue;
        if (shape.dim(axis).has_dim_value()) sharding.set_dim_value(shape.dim(axis).dim_value());
        if (shape.dim(axis).has_dim_param()) sharding.set_dim_param(shape.dim(axis).dim_param());
      }
    }
  }

  const DevicePlacement& placement_;
  onnx::GraphProto& graph_;
  onnx::ModelProto& model_;
  std::vector<int> stages_;  // by node position
  std::set<std::string> weights_;
};

}  // namespace

void AnnotateDevices(const DevicePlacement& placement, onnx::ModelProto& model) { Annotator(placement, model).Run(); }

}  // namespace gradloom
