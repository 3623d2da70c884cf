#include "compiler/onnx/torch/restore_splits.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "compiler/onnx/edited_graph.h"
#include "compiler/onnx/standard_domain.h"
#include "compiler/onnx/torch/lost_tensors.h"
#include "compiler/onnx/torch/module_signature.h"
#include "compiler/onnx/torch/torch_source.h"

namespace gradloom {
namespace {

// The module of a tensor.
std::string_view ParentOf(std::string_view tensor) {
  const size_t dot = tensor.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : tensor.substr(0, dot);
}

class SplitRestorer {
 public:
  explicit SplitRestorer(ModelFile& file) : edited_(file), graph_(edited_.proto()), module_(graph_) {}

  std::vector<std::string> Run() {
    if (module_.parameters.empty()) return {};
    lost_ = LostTensors(edited_, module_);
    if (lost_.empty()) return {};
    for (size_t i = 0; i < module_.ordered.size(); ++i) order_.emplace(module_.ordered[i], i);
    for (const std::string& name : lost_) by_module_[std::string(ParentOf(name))].push_back(name);
    ForEachGraph(graph_, [&](onnx::GraphProto& graph) {
      for (onnx::NodeProto& node : *graph.mutable_node()) {
        for (const std::string_view name : NamesOfCall(TorchSource(node))) {
          if (const auto tensor = module_.arguments.find(name); tensor != module_.arguments.end()) used_.insert(tensor->second);
        }
        for (int i = 0; i < node.input_size(); ++i) readers_[node.input(i)].emplace_back(&node, i);
      }
    });
    for (const onnx::NodeProto& node : graph_.node()) {
      if (IsOfTensor(node) && ReadersOf(node).contains(std::string(ParentOf(node.input(0))))) used_.insert(node.input(0));
    }
    std::map<const onnx::NodeProto*, std::vector<onnx::NodeProto>> added;
    for (onnx::NodeProto& node : *graph_.mutable_node()) {
      if (std::vector<onnx::NodeProto> splits = Divide(node); !splits.empty()) added[&node] = std::move(splits);
    }
    if (!added.empty()) InsertAfter(std::move(added), graph_);
    return std::move(restored_);
  }

 private:
  using Input = std::pair<onnx::NodeProto*, int>;

  // Whether the exporter divides a tensor of the module.
  bool IsOfTensor(const onnx::NodeProto& split) const {
    if (!IsStandard(split, "Split") || split.input_size() == 0 || !TorchSource(split).empty()) return false;
    return order_.contains(split.input(0)) && edited_.Find(split.input(0)) != nullptr;
  }

  // By module: what reads the parts.
  std::map<std::string, std::vector<Input>> ReadersOf(const onnx::NodeProto& split) const {
    std::map<std::string, std::vector<Input>> readers;
    for (const std::string& output : split.output()) {
      const auto found = readers_.find(output);
      if (found == readers_.end()) continue;
      for (const Input& input : found->second) {
        if (const std::optional<std::string_view> module = ModuleOf(*input.first)) readers[std::string(*module)].push_back(input);
      }
    }
    return readers;
  }

  // Whether the file does not say of which module the code is that reads a part.
  bool HasUnknownReaders(const onnx::NodeProto& split) const {
    return std::ranges::any_of(split.output(), [&](const std::string& output) {
      const auto found = readers_.find(output);
      return found != readers_.end() && std::ranges::any_of(found->second, [](const Input& input) { return !ModuleOf(*input.first); });
    });
  }

  // Gives the readers in each other module a tensor of theirs. Returns further splits.
  std::vector<onnx::NodeProto> Divide(onnx::NodeProto& split) {
    std::vector<onnx::NodeProto> further;
    // The code of a module may also divide a tensor of another one, which then has no other use.
    if (!IsOfTensor(split) || !used_.contains(split.input(0))) return further;
    const std::string merged = split.input(0);
    std::map<std::string, std::vector<Input>> readers = ReadersOf(split);
    bool any_own = readers.erase(std::string(ParentOf(merged))) > 0 || HasUnknownReaders(split);
    for (const auto& [module, inputs] : readers) {
      const std::string* const own = LostOf(module, merged);
      if (own == nullptr || !edited_.Take(*own)) {
        any_own = true;
        continue;
      }
      const Tensor data = edited_.DataOf(merged);
      edited_.AddInitializer(*own, data);
      restored_.push_back(*own);
      if (!std::exchange(any_own, true)) {
        split.set_input(0, *own);
      } else {
        further.push_back(SplitOf(split, *own, inputs));
      }
      lost_.erase(*own);
    }
    return further;
  }

  // The tensor of a module that was merged with another one. Of a module that others have under several names, the file has the last
  // name, so a tensor that comes before it may be that under another name.
  const std::string* LostOf(const std::string& module, const std::string& merged) const {
    const auto found = by_module_.find(module);
    if (found == by_module_.end()) return nullptr;
    const std::string* only = nullptr;
    int count = 0;
    for (const std::string& name : found->second) {
      if (!lost_.contains(name) || order_.at(name) < order_.at(merged)) continue;
      if (name.substr(ParentOf(name).size()) == merged.substr(ParentOf(merged).size())) return &name;
      only = &name;
      ++count;
    }
    return count == 1 ? only : nullptr;
  }

  onnx::NodeProto SplitOf(const onnx::NodeProto& split, const std::string& tensor, const std::vector<Input>& readers) {
    onnx::NodeProto copy = split;
    copy.set_name(tensor + "/split");
    copy.set_input(0, tensor);
    for (std::string& output : *copy.mutable_output()) {
      if (output.empty()) continue;
      const std::string part = edited_.TakeSimilar(tensor + "/" + output);
      for (const auto& [node, input] : readers) {
        if (node->input(input) == output) node->set_input(input, part);
      }
      output = part;
    }
    return copy;
  }

  EditedGraph edited_;
  onnx::GraphProto& graph_;
  const ModuleSignature module_;
  NameSet lost_;
  NameSet used_;                         // by their own modules: named by nodes, or read in parts
  std::map<std::string, size_t> order_;  // of the module's tensors
  std::map<std::string, std::vector<std::string>> by_module_;
  std::map<std::string, std::vector<Input>> readers_;
  std::vector<std::string> restored_;
};

}  // namespace

std::vector<std::string> RestoreSplits(ModelFile& file) { return SplitRestorer(file).Run(); }

}  // namespace gradloom
