#include "compiler/onnx/torch/restore_norms.h"

#include <algorithm>
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

#include "compiler/onnx/edited_graph.h"
#include "compiler/onnx/proto_convert.h"
#include "compiler/onnx/standard_domain.h"
#include "compiler/onnx/torch/module_signature.h"
#include "compiler/onnx/torch/torch_source.h"

namespace gradloom {
namespace {

// The momentum and the epsilon of a call, its last arguments: (%x, %w, %b, %mean, %var, 0.1, 1e-05
std::optional<std::pair<float, float>> ConstantsOf(const TorchCall& call) {
  std::array<float, 2> numbers{};
  if (call.arguments.size() < numbers.size()) return std::nullopt;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const std::string_view text = call.arguments[call.arguments.size() - numbers.size() + i];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), numbers[i]);
    if (error != std::errc() || end != text.data() + text.size() || !(numbers[i] >= 0 && numbers[i] <= 1)) return std::nullopt;
  }
  return std::pair(numbers[0], numbers[1]);
}

class NormRestorer {
 public:
  explicit NormRestorer(ModelFile& file) : edited_(file), graph_(edited_.proto()), module_(graph_), readers_(CountReaders(graph_)) {}

  std::vector<std::string> Run() {
    if (module_.parameters.empty()) return {};
    std::map<const onnx::NodeProto*, std::vector<onnx::NodeProto>> norms;
    for (onnx::NodeProto& node : *graph_.mutable_node()) {
      if (std::optional<onnx::NodeProto> norm = NormOf(node)) norms[&node].push_back(std::move(*norm));
    }
    if (!norms.empty()) InsertAfter(std::move(norms), graph_);
    return std::move(restored_);
  }

 private:
  // The normalization that follows a layer. The layer's result gets another name.
  std::optional<onnx::NodeProto> NormOf(onnx::NodeProto& layer) {
    const bool is_layer = IsStandard(layer, "Conv") || IsStandard(layer, "ConvTranspose") || IsStandard(layer, "Gemm");
    if (!is_layer || layer.input_size() != 2 || layer.output_size() != 1) return std::nullopt;
    const TorchCall call(TorchSource(layer));
    const auto constants = ConstantsOf(call);
    if (call.family() != "batch_norm" || call.operands.size() != 5 || edited_.Find(layer.input(1)) == nullptr || !constants)
      return std::nullopt;
    Tensor& filter = edited_.DataOf(layer.input(1));
    if (filter.dtype() != DType::kFloat32 || readers_.at(layer.input(1)) != 1) return std::nullopt;
    const std::optional<int64_t> features = FeaturesOf(layer, filter.shape());
    std::array<std::string, 4> names;
    for (size_t i = 0; i < names.size(); ++i) {
      const auto found = module_.arguments.find(call.operands[i + 1]);
      if (found == module_.arguments.end() || !features || !MayTake(found->second, *features, NumberOf(i))) return std::nullopt;
      names[i] = found->second;
    }
    if (std::set<std::string>(names.begin(), names.end()).size() != names.size()) return std::nullopt;
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
      if (!edited_.Take(names[i])) continue;
      edited_.AddInitializer(names[i], Tensor::From(std::vector<float>(static_cast<size_t>(*features), NumberOf(i)), Shape{*features}));
      restored_.push_back(names[i]);
    }
    onnx::NodeProto norm;
    norm.set_op_type("BatchNormalization");
    norm.set_name(layer.name() + "/norm");
    norm.add_output(layer.output(0));
    layer.set_output(0, edited_.TakeSimilar(layer.output(0) + "/layer"));
    norm.add_input(layer.output(0));
    for (const std::string& name : names) norm.add_input(name);
    SetAttribute("epsilon", double{epsilon}, norm.add_attribute());
    SetAttribute("momentum", double{1 - momentum}, norm.add_attribute());
    *norm.mutable_metadata_props() = std::move(*layer.mutable_metadata_props());
    layer.clear_metadata_props();
    return norm;
  }

  // The elements of the scale, shift, mean and variance.
  static float NumberOf(size_t operand) { return operand == 0 || operand == 3 ? 1 : 0; }

  // Whether nothing has the name, or the tensor itself, which the file has kept for others that are equal.
  bool MayTake(const std::string& name, int64_t features, float number) {
    if (!edited_.IsTaken(name)) return true;
    if (edited_.Find(name) == nullptr) return false;
    const Tensor& data = edited_.DataOf(name);
    return data.dtype() == DType::kFloat32 && data.shape() == Shape{features} &&
           std::ranges::all_of(data.as<float>(), [number](float element) { return element == number; });
  }

  EditedGraph edited_;
  onnx::GraphProto& graph_;
  const ModuleSignature module_;
  const std::map<std::string, int> readers_;
  std::vector<std::string> restored_;
};

}  // namespace

std::vector<std::string> RestoreNorms(ModelFile& file) { return NormRestorer(file).Run(); }

}  // namespace gradloom
