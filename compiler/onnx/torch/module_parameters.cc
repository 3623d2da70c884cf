#include "compiler/onnx/torch/module_parameters.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "compiler/onnx/equal_elements.h"
#include "compiler/onnx/torch/module_signature.h"
#include "compiler/onnx/torch/torch_source.h"
#include "runtime/base/error.h"

namespace gradloom {

std::map<std::string, bool> ModuleParameters(const ModelFile& file) {
  const onnx::GraphProto& graph = file.proto.graph();
  const ModuleSignature module(graph);
  std::map<std::string, bool> kinds;
  if (module.parameters.empty()) return kinds;
  std::map<std::string_view, NameSet> sources;
  for (const onnx::ValueInfoProto& info : graph.value_info()) {
    if (NameSet names = SourcesOf(info); !names.empty()) sources.emplace(info.name(), std::move(names));
  }
  // Whether the graph has all parameters, directly or in values computed from them. The default exporter keeps one of several tensors with
  // equal elements, so a running mean of zeros may also be a bias.
  NameSet kept;
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    kept.insert(tensor.name());
    if (const auto found = sources.find(tensor.name()); found != sources.end()) kept.insert(found->second.begin(), found->second.end());
  }
  const bool sure = std::includes(kept.begin(), kept.end(), module.parameters.begin(), module.parameters.end());
  const auto any_of = [](const NameSet& names, const NameSet& these) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return these.contains(name); });
  };
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    const std::string& name = tensor.name();
    const auto computed = sources.find(name);
    if (module.parameters.contains(name)) {
      kinds.emplace(name, true);
    } else if (module.others.contains(name)) {
      const auto found = file.tensors.find(&tensor);
      if (sure || (found != file.tensors.end() && !HasEqualElements(found->second.data))) kinds.emplace(name, false);
    } else if (computed != sources.end() && any_of(computed->second, module.parameters)) {
      kinds.emplace(name, true);
    } else if (computed != sources.end()) {
      const auto found = file.tensors.find(&tensor);
      if (sure || !any_of(computed->second, module.others) || (found != file.tensors.end() && !HasEqualElements(found->second.data)))
        kinds.emplace(name, false);
    }
  }
  return kinds;
}

std::map<std::string, std::string> DividedParameters(const ModelFile& file) {
  const onnx::GraphProto& graph = file.proto.graph();
  const ModuleSignature module(graph);
  std::map<std::string_view, NameSet> sources;
  for (const onnx::ValueInfoProto& info : graph.value_info()) sources.emplace(info.name(), SourcesOf(info));
  const auto elements = [&](const onnx::TensorProto& of) {
    const auto found = file.tensors.find(&of);
    return found == file.tensors.end() ? -1 : found->second.data.elements();
  };
  // By parameter: the initializer that it is, or the first that was computed from it alone.
  std::map<std::string, const onnx::TensorProto*, std::less<>> forms;
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    if (module.parameters.contains(tensor.name())) forms.emplace(tensor.name(), &tensor);
  }
  std::map<std::string, std::string> warnings;
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    const auto from = sources.find(tensor.name());
    if (from == sources.end() || module.parameters.contains(tensor.name())) continue;
    for (const std::string& parameter : from->second) {
      if (!module.parameters.contains(parameter)) continue;
      const bool alone = from->second.size() == 1;
      const auto form = alone ? forms.emplace(parameter, &tensor).first : forms.find(parameter);
      if (form == forms.end() || form->second == &tensor) continue;
      // Several values of one parameter, such as those of a folded normalization, are no copies of it.
      if (form->second->name() != parameter && elements(tensor) != elements(*form->second)) continue;
      warnings.emplace(
          tensor.name(),
          "the file has the parameter '" + Escaped(parameter, 80) + "' twice, as '" + Escaped(form->second->name(), 80) + "' and in '" +
              Escaped(tensor.name(), 80) +
              "', which the exporter computed from it: they are trained as two weights; export with optimize=False to train one, "
              "as the module does");
      break;
    }
  }
  return warnings;
}

namespace {

// Whether a tensor was computed by operators that change elements, or holds copies of an element that a table has once, which are trained
// as several. `names`: what torch.export's graph calls its sources, operators included.
bool IsComputed(const std::string& name, const NameSet& names, const ModuleSignature& module, const Tensor& data) {
  // The operators that look up rows. What is called val_7 may be anything; numbers in the code and positions are no weights.
  static const std::set<std::string_view> lookups = {"embedding", "gather", "index", "index_select"};
  static const std::set<std::string_view> others = {
      "val", "arange", "full", "lift_fresh_copy", "lifted_tensor", "ones", "scalar_tensor_default", "zeros"};
  bool looks_up = false, is_changed = false;
  const auto see = [&](std::string_view of) {
    const std::string_view base = CallName(of).base;
    looks_up = looks_up || lookups.contains(base);
    is_changed = is_changed || (!MovesElements(of) && !lookups.contains(base) && !others.contains(base));
  };
  see(name);
  for (const std::string& source : names) {
    if (!module.parameters.contains(source) && !module.others.contains(source)) see(source);
  }
  // With a lookup, the other operators may be those that computed the positions.
  return looks_up ? HasRepeatedElements(data) : is_changed;
}

}  // namespace

std::map<std::string, std::string> ComputedParameters(const ModelFile& file) {
  const onnx::GraphProto& graph = file.proto.graph();
  const ModuleSignature module(graph);
  std::map<std::string, const onnx::TensorProto*> initializers;
  for (const onnx::TensorProto& tensor : graph.initializer()) initializers.emplace(tensor.name(), &tensor);
  std::map<std::string, std::string> computed;
  for (const onnx::ValueInfoProto& info : graph.value_info()) {
    const std::string& name = info.name();
    const auto tensor = initializers.find(name);
    if (tensor == initializers.end() || module.parameters.contains(name) || module.others.contains(name) ||
        name.find_first_of("./") != std::string::npos)
      continue;
    const NameSet sources = SourcesOf(info);
    std::string parameters;
    for (const std::string& source : sources) {
      if (!module.parameters.contains(source) || initializers.contains(source)) continue;
      parameters += (parameters.empty() ? "" : " and ") + Escaped(source, 80);
    }
    const auto data = file.tensors.find(tensor->second);
    if (!parameters.empty() && data != file.tensors.end() && IsComputed(name, sources, module, data->second.data))
      computed.emplace(name, std::move(parameters));
  }
  return computed;
}

}  // namespace gradloom
