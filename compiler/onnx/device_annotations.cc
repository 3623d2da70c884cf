#include "compiler/onnx/device_annotations.h"

#include <algorithm>
#include <set>

#include "compiler/onnx/model_file.h"
#include "compiler/onnx/node_names.h"
#include "compiler/onnx/operator_support.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

// The reason why annotations cannot be used.
struct Unusable {
  std::string why;
};

class Reader {
 public:
  explicit Reader(const onnx::ModelProto& model) : model_(model), graph_(model.graph()) {
    for (const auto& tensor : graph_.initializer()) weights_.insert(tensor.name());
    for (const auto& tensor : graph_.sparse_initializer()) weights_.insert(tensor.values().name());
  }

  FilePlacement Run() {
    int annotated = 0, within = 0;
    ForEachNodeOf(model_, [&](const onnx::NodeProto& node, const OpsetVersions&) { annotated += node.device_configurations_size() > 0; });
    for (const auto& node : graph_.node()) within += node.device_configurations_size() > 0;
    within = annotated - within;
    if (model_.configuration().empty() && annotated == 0) return {};
    try {
      FilePlacement read{Read(), ""};
      if (model_.configuration_size() > 1)
        read.note = "the file has " + std::to_string(model_.configuration_size()) + " device configurations; the first is used: '" +
                    Escaped(Id()) + "'";
      if (within > 0)
        read.note += (read.note.empty() ? "" : "; ") + std::to_string(within) + " annotations in functions and nested graphs are ignored";
      return read;
    } catch (const Unusable& unusable) {
      return {std::nullopt, "the file's device placement is ignored: " + unusable.why};
    }
  }

 private:
  const std::string& Id() const { return model_.configuration(0).name(); }

  static std::string NameOf(const onnx::NodeProto& node) { return node.op_type() + " '" + Escaped(DisplayName(node)) + "'"; }

  // Returns the node's part of the first configuration, or null.
  const onnx::NodeDeviceConfigurationProto* PartOf(const onnx::NodeProto& node) const {
    const onnx::NodeDeviceConfigurationProto* part = nullptr;
    for (const auto& configuration : node.device_configurations()) {
      if (configuration.configuration_id() != Id()) continue;
      if (part != nullptr) throw Unusable{NameOf(node) + " is in the configuration twice"};
      part = &configuration;
    }
    return part;
  }

  DevicePlacement Read() {
    if (model_.configuration().empty()) throw Unusable{"nodes refer to a device configuration, but the model has none"};
    DevicePlacement placement;
    placement.devices = model_.configuration(0).num_devices();
    constexpr int kMaxDeviceCount = 1 << 16;
    if (placement.devices < 1 || placement.devices > kMaxDeviceCount)
      throw Unusable{"configuration '" + Escaped(Id()) + "' has " + std::to_string(placement.devices) + " devices"};
    FindStages(placement);
    if (placement.devices % placement.stages != 0) {
      throw Unusable{std::to_string(placement.devices) + " devices are not a multiple of the model's " + std::to_string(placement.stages) +
                     " stages"};
    }
    for (const auto& node : graph_.node()) {
      if (const auto* part = PartOf(node)) CheckSharding(node, *part, placement);
    }
    return placement;
  }

  // Finds stages from pipeline stages, or from single devices if there are none.
  void FindStages(DevicePlacement& placement) const {
    bool staged = false;
    for (const auto& node : graph_.node()) {
      const auto* part = PartOf(node);
      staged |= part != nullptr && part->has_pipeline_stage();
    }
    NodeNames names;
    for (const auto& node : graph_.node()) {
      const std::string name = names.Next(node);
      const auto* part = PartOf(node);
      if (part == nullptr) continue;
      int64_t stage = staged ? part->pipeline_stage() : OnlyDevice(*part);
      if (staged && !part->has_pipeline_stage()) continue;
      if (stage < 0 && !staged) continue;
      if (stage < 0 || stage >= placement.devices)
        throw Unusable{NameOf(node) + " is on stage " + std::to_string(stage) + " of " + std::to_string(placement.devices) + " devices"};
      placement.of_node.emplace(name, static_cast<int>(stage));
      placement.stages = std::max(placement.stages, static_cast<int>(stage) + 1);
    }
    // With nodes on single devices there is one replica.
    if (!staged && !placement.of_node.empty()) placement.stages = placement.devices;
  }

  // Returns the device of all the node's tensors; -1 if there are several.
  static int64_t OnlyDevice(const onnx::NodeDeviceConfigurationProto& part) {
    std::set<int64_t> devices;
    for (const auto& spec : part.sharding_spec()) devices.insert(spec.device().begin(), spec.device().end());
    return devices.size() == 1 && !part.sharding_spec().empty() ? *devices.begin() : -1;
  }

  void CheckSharding(const onnx::NodeProto& node, const onnx::NodeDeviceConfigurationProto& part, const DevicePlacement& placement) const {
    const int copies = placement.devices / placement.stages;
    for (const auto& spec : part.sharding_spec()) {
      const std::string tensor = "'" + Escaped(spec.tensor_name()) + "' of " + NameOf(node);
      if (!spec.index_to_device_group_map().empty()) throw Unusable{tensor + " is sharded over groups of devices"};
      for (const int64_t device : spec.device()) {
        if (device < 0 || device >= placement.devices)
          throw Unusable{tensor + " is on device " + std::to_string(device) + " of " + std::to_string(placement.devices)};
      }
      if (spec.device_size() != copies)
        throw Unusable{tensor + " is on " + std::to_string(spec.device_size()) + " devices, but the model has " + std::to_string(copies) +
                       " replicas"};
      for (const auto& dim : spec.sharded_dim()) {
        int64_t shards = 1;
        for (const auto& sharding : dim.simple_sharding()) shards *= std::max<int64_t>(sharding.num_shards(), 0);
        if (shards == 1) continue;
        if (weights_.contains(spec.tensor_name())) throw Unusable{"the weight " + tensor + " is sharded"};
        if (dim.axis() != 0)
          throw Unusable{tensor + " is sharded along axis " + std::to_string(dim.axis()) + ", which is not the batch axis"};
        if (shards != copies)
          throw Unusable{tensor + " is sharded into " + std::to_string(shards) + " parts, but the model has " + std::to_string(copies) +
                         " replicas"};
      }
    }
  }

  const onnx::ModelProto& model_;
  const onnx::GraphProto& graph_;
  std::set<std::string> weights_;
};

}  // namespace

FilePlacement ReadPlacement(const Model& model) { return Reader(model.file().proto).Run(); }

}  // namespace gradloom
