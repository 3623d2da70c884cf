#include "compiler/onnx/restore_norms.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "compiler/onnx/module_signature.h"
#include "compiler/onnx/standard_domain.h"
#include "compiler/onnx/torch_source.h"

namespace gradloom {
namespace {

// The momentum and the epsilon of a call, its last arguments: (%x, %w, %b, %mean, %var, 0.1, 1e-05
std::optional<std::pair<float, float>> ConstantsOf(const TorchCall& call) {
  std::array<float, 2> numbers{};
  std::string_view left = call.arguments;
  for (size_t i = numbers.size(); i-- > 0;) {
    const size_t comma = left.rfind(", ");
    if (comma == std::string_view::npos) return std::nullopt;
    const std::string_view text = left.substr(comma + 2);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), numbers[i]);
    if (error != std::errc() || end != text.data() + text.size() || !(numbers[i] >= 0 && numbers[i] <= 1)) return std::nullopt;
    left = left.substr(0, comma);
  }
  return std::pair(numbers[0], numbers[1]);
}

class NormRestorer {
 public:
  explicit NormRestorer(ModelFile& file) : file_(file), graph_(*file.proto.mutable_graph()), module_(graph_) {
    for (onnx::TensorProto& tensor : *graph_.mutable_initializer()) initializers_.emplace(tensor.name(), &tensor);
    for (const auto& [name, tensor] : initializers_) taken_.insert(name);
    for (const onnx::ValueInfoProto& input : graph_.input()) taken_.insert(input.name());
    for (const onnx::NodeProto& node : graph_.node()) {
      taken_.insert(node.output().begin(), node.output().end());
      for (const std::string& input : node.input()) ++readers_[input];
    }
  }

  std::vector<std::string> Run() {
    if (module_.parameters.empty()) return {};
    std::vector<std::optional<onnx::NodeProto>> norms;
    bool any = false;
    for (onnx::NodeProto& node : *graph_.mutable_node()) any |= norms.emplace_back(NormOf(node)).has_value();
    if (any) InsertAfter(norms);
    return std::move(restored_);
  }

 private:
  // The normalization that follows a layer. The layer's result gets another name.
  std::optional<onnx::NodeProto> NormOf(onnx::NodeProto& layer) {
    const bool is_layer = IsStandard(layer, "Conv") || IsStandard(layer, "ConvTranspose") || IsStandard(layer, "Gemm");
    if (!is_layer || layer.input_size() != 2 || layer.output_size() != 1) return std::nullopt;
    const TorchCall call(TorchSource(layer));
    const auto weight = initializers_.find(layer.input(1));
    const auto constants = ConstantsOf(call);
    if (call.family() != "batch_norm" || call.operands.size() != 5 || weight == initializers_.end() || !constants) return std::nullopt;
    Tensor& filter = file_.tensors.at(weight->second).data;
    if (filter.dtype() != DType::kFloat32 || filter.shape().rank() < 2 || readers_.at(layer.input(1)) != 1) return std::nullopt;
    const std::optional<int64_t> features = FeaturesOf(layer, filter.shape());
    std::array<std::string, 4> names;
    for (size_t i = 0; i < names.size(); ++i) {
      const auto found = module_.arguments.find(call.operands[i + 1]);
      if (found == module_.arguments.end() || taken_.contains(found->second)) return std::nullopt;
      names[i] = found->second;
    }
    if (!features || std::set<std::string>(names.begin(), names.end()).size() != names.size()) return std::nullopt;
    const auto [momentum, epsilon] = *constants;
    Tensor unfolded = Tensor::Copy(filter.view());
    bool zeros = true;
    const float factor = std::sqrt(1 + epsilon);
    for (float& element : unfolded.as<float>()) {
      zeros = zeros && element == 0;
      element *= factor;
    }
    // The scales were zeros, and the weight is lost.
    if (zeros) return std::nullopt;
    filter = std::move(unfolded);
    for (size_t i = 0; i < names.size(); ++i) {
      const float number = i == 0 || i == 3 ? 1 : 0;
      AddInitializer(file_, names[i], Tensor::From(std::vector<float>(static_cast<size_t>(*features), number), Shape{*features}),
                     onnx::TensorProto::FLOAT);
      taken_.insert(names[i]);
      restored_.push_back(names[i]);
    }
    onnx::NodeProto norm;
    norm.set_op_type("BatchNormalization");
    norm.set_name(layer.name() + "/norm");
    norm.add_output(layer.output(0));
    layer.set_output(0, Unused(layer.output(0) + "/layer"));
    norm.add_input(layer.output(0));
    for (const std::string& name : names) norm.add_input(name);
    AddFloat("epsilon", epsilon, norm);
    AddFloat("momentum", 1 - momentum, norm);
    *norm.mutable_metadata_props() = std::move(*layer.mutable_metadata_props());
    layer.clear_metadata_props();
    return norm;
  }

  static std::optional<int64_t> FeaturesOf(const onnx::NodeProto& layer, const Shape& filter) {
    if (layer.op_type() == "Conv") return filter[0];
    if (layer.op_type() == "Gemm") return IntOf(layer, "transB", 0) == 0 ? filter[1] : filter[0];
    const int64_t groups = IntOf(layer, "group", 1);
    return groups < 1 || groups > filter[0] ? std::nullopt : std::optional(filter[1] * groups);
  }

  static void AddFloat(const char* name, float number, onnx::NodeProto& node) {
    onnx::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::FLOAT);
    attribute.set_f(number);
  }

  std::string Unused(std::string name) {
    while (!taken_.insert(name).second) name += "_";
    return name;
  }

  // The nodes stay where they are in memory, since their tensors are known by address.
  void InsertAfter(std::vector<std::optional<onnx::NodeProto>>& norms) {
    auto& nodes = *graph_.mutable_node();
    std::vector<onnx::NodeProto*> all(static_cast<size_t>(nodes.size()));
    nodes.ExtractSubrange(0, nodes.size(), all.data());
    for (size_t i = 0; i < all.size(); ++i) {
      nodes.AddAllocated(all[i]);
      if (norms[i]) *nodes.Add() = std::move(*norms[i]);
    }
  }

  ModelFile& file_;
  onnx::GraphProto& graph_;
  const ModuleSignature module_;
  std::map<std::string, const onnx::TensorProto*> initializers_;
  std::set<std::string> taken_;  // names of values
  std::map<std::string, int> readers_;
  std::vector<std::string> restored_;
};

}  // namespace

std::vector<std::string> RestoreNorms(ModelFile& file) { return NormRestorer(file).Run(); }

}  // namespace gradloom
