#include "compiler/onnx/torch/separate_nodes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/onnx/edited_graph.h"
#include "compiler/onnx/torch/lost_tensors.h"
#include "compiler/onnx/torch/module_signature.h"
#include "compiler/onnx/torch/torch_calls.h"
#include "compiler/onnx/torch/torch_source.h"

namespace gradloom {
namespace {

// How much is looked at: pairs of tensors, and of nodes and modules. A file that has more was not written by an exporter.
constexpr size_t kMostPairs = 4'000'000;
// Of a name of the module's tensors that may be compared by its components.
constexpr size_t kMostComponents = 32, kLongestName = 1000;

// A module of which the file lacks the nodes, and the one whose nodes stand for both: blocks.1 and blocks.0 for the parameters
// blocks.1.ada.weight and blocks.0.ada.weight.
struct Twins {
  std::string lost, kept;
  size_t order = SIZE_MAX;  // of the lost one, in the module
};

// The first `components` of a.b.c.
std::string_view Prefix(std::string_view name, size_t components) {
  size_t end = 0;
  while (components-- > 0 && end != std::string_view::npos) end = name.find('.', end + (end > 0));
  return name.substr(0, end);
}

bool IsWithin(std::string_view name, std::string_view module) {
  return name == module || (name.starts_with(module) && name.size() > module.size() && name[module.size()] == '.');
}

class Separator {
 public:
  explicit Separator(ModelFile& file) : edited_(file), graph_(edited_.proto()), module_(graph_) {}

  void Run() {
    if (module_.parameters.empty()) return;
    FindSimilar();
    if (lost_.empty()) return;
    calls_.emplace(edited_, module_);
    FindTwins();
    Assign();
    if (!wanted_.empty() && pairs_ <= kMostPairs) Copy();
  }

 private:
  void FindSimilar() {
    lost_ = LostTensors(edited_, module_);
    for (const std::string& name : lost_) {
      for (size_t i = 0; i < ComparedComponents(name); ++i) similar_[Pattern(name, i)].push_back(name);
    }
  }

  static size_t ComparedComponents(std::string_view name) {
    const size_t components = 1 + static_cast<size_t>(std::ranges::count(name, '.'));
    return components > kMostComponents || name.size() > kLongestName ? 0 : components;
  }

  // The name with a component left open. Of the last one, which says what a tensor is (weight, bias), only a number at its end is open.
  static std::string Pattern(std::string_view name, size_t component) {
    const std::string_view head = Prefix(name, component), with = Prefix(name, component + 1);
    if (with.size() < name.size()) return std::string(head) + (component > 0 ? ".*" : "*") + std::string(name.substr(with.size()));
    return std::string(WithoutNumber(name)) + "#";
  }

  // For each node that was merged, the modules whose nodes it may stand for: those whose parameters take the place of the ones that it or
  // a merged node before it reads.
  void FindTwins() {
    for (size_t i = 0; i < module_.ordered.size(); ++i) order_.emplace(module_.ordered[i], i);
    const auto& nodes = calls_->nodes();
    twins_of_.resize(nodes.size());
    for (size_t id = 0; id < nodes.size() && pairs_ <= kMostPairs; ++id) {
      const TorchCalls::Call& call = calls_->call_of(id);
      if (nodes[id].is_nested || call.merged < 2) continue;
      std::set<size_t> twins;
      bool has_tensor = false;
      for (const std::string& input : nodes[id].node->input()) {
        has_tensor = has_tensor || edited_.Find(input) != nullptr;
        if (const size_t* const producer = ProducerBefore(id, input); producer != nullptr)
          twins.insert(twins_of_[*producer].begin(), twins_of_[*producer].end());
      }
      if (has_tensor) AddTwins(id, twins);
      pairs_ += twins.size();
      twins_of_[id].assign(twins.begin(), twins.end());
    }
  }

  // The modules that have the same numbered name (blocks.1 and blocks.0, norm2 and norm1), or, if there are none, any other one (norm_k).
  // Of a module that others have under several names, torch.export's graph has the last one for the parameters, and the first one for the
  // module: such a layer has no twins.
  void AddTwins(size_t id, std::set<size_t>& twins) {
    const std::optional<std::string_view> scope = ModuleOf(*calls_->nodes()[id].node);
    if (!scope) return;
    for (const bool is_numbered : {true, false}) {
      bool any = false;
      for (const std::string_view operand : calls_->call_of(id).operands) {
        const auto found = module_.arguments.find(operand);
        if (found == module_.arguments.end() || (!scope->empty() && !IsWithin(found->second, *scope))) continue;
        any = AddTwinsOf(found->second, is_numbered, id, twins) || any;
      }
      if (any) return;
    }
  }

  bool AddTwinsOf(const std::string& kept, bool is_numbered, size_t id, std::set<size_t>& twins) {
    const TorchCalls::Call& call = calls_->call_of(id);
    bool any = false;
    for (size_t i = 0; i < ComparedComponents(kept); ++i) {
      const auto similar = similar_.find(Pattern(kept, i));
      if (similar == similar_.end()) continue;
      pairs_ += similar->second.size() * call.operands.size();
      if (pairs_ > kMostPairs) return true;
      for (const std::string& lost : similar->second) {
        const std::string_view of_kept = Prefix(kept, i + 1), of_lost = Prefix(lost, i + 1);
        if ((WithoutNumber(of_kept) == WithoutNumber(of_lost)) != is_numbered) continue;
        if (order_.at(lost) < order_.at(kept) || !LacksAll(call, of_kept, of_lost)) continue;
        const auto [at, fresh] = numbers_.try_emplace({std::string(of_lost), std::string(of_kept)}, twins_.size());
        if (fresh) twins_.push_back({std::string(of_lost), std::string(of_kept)});
        twins_[at->second].order = std::min(twins_[at->second].order, order_.at(lost));
        layers_[at->second].insert(calls_->nodes()[id].call);
        twins.insert(at->second);
        any = true;
      }
    }
    return any;
  }

  static std::string_view WithoutNumber(std::string_view name) { return name.substr(0, name.find_last_not_of("0123456789") + 1); }

  // The tensor of the module `lost` in the place of one of `kept`. Empty: the tensor is not one of `kept`.
  static std::string InPlaceOf(const std::string& tensor, std::string_view kept, std::string_view lost) {
    return IsWithin(tensor, kept) ? std::string(lost) + tensor.substr(kept.size()) : "";
  }

  bool LacksAll(const TorchCalls::Call& call, std::string_view kept, std::string_view lost) const {
    return std::ranges::all_of(call.operands, [&](std::string_view operand) {
      const auto found = module_.arguments.find(operand);
      if (found == module_.arguments.end()) return true;
      const std::string other = InPlaceOf(found->second, kept, lost);
      return other.empty() || lost_.contains(other);
    });
  }

  // Decides to which of the lost modules the names belong that calls have for the result of merged nodes.
  void Assign() {
    const auto& nodes = calls_->nodes();
    for (size_t id = 0; id < nodes.size(); ++id) {
      if (twins_of_[id].empty()) continue;
      for (const std::string& output : nodes[id].node->output()) {
        const TorchCalls::Renamed* const renamed = calls_->RenamedOf(output);
        // The layer that was kept has readers, too.
        if (renamed == nullptr || !calls_->HasOwnReaders(output)) continue;
        const std::map<std::string_view, size_t> owners = OwnersOf(*renamed, id);
        for (const auto& [name, twins] : owners) {
          const std::set<Edge>& readers = renamed->at(std::string(name));
          std::set<size_t> chain = Chain(id, twins);
          pairs_ += chain.size();
          if (pairs_ > kMostPairs) return;
          if (MayCopy(chain, twins, readers)) wanted_.push_back({output, std::string(name), std::move(chain), twins, &readers});
        }
      }
    }
  }

  // By the modules of the readers, or else, if there are as many names as lost modules, by the order of the calls and of the modules.
  std::map<std::string_view, size_t> OwnersOf(const TorchCalls::Renamed& renamed, size_t id) const {
    const std::vector<size_t>& twins = twins_of_[id];
    std::map<std::string_view, size_t> owners;
    bool any_within = false;
    for (const auto& [name, edges] : renamed) {
      for (const size_t one : twins) {
        const bool is_lost = AreReadersWithin(edges, twins_[one].lost);
        any_within = any_within || is_lost || AreReadersWithin(edges, twins_[one].kept);
        if (!is_lost) continue;
        // Two modules of which one contains the other: whichever it is, the readers do not say.
        if (!owners.emplace(name, one).second) owners[name] = SIZE_MAX;
      }
    }
    std::erase_if(owners, [](const auto& owner) { return owner.second == SIZE_MAX; });
    if (any_within) return owners;
    std::vector<size_t> ordered = twins;
    // Of too many, those that this node is a layer of: others may come from nodes before it that only seem to be merged, since the exporter
    // has removed an operator that had their result for itself.
    if (renamed.size() != ordered.size())
      std::erase_if(ordered, [&](size_t one) { return !layers_.at(one).contains(calls_->nodes()[id].call); });
    if (renamed.size() != ordered.size()) return owners;
    std::vector<std::string_view> names;
    for (const auto& [name, edges] : renamed) names.push_back(name);
    std::ranges::sort(names, {}, [](std::string_view name) { return CallName(name).number; });
    std::ranges::sort(ordered, {}, [&](size_t one) { return twins_[one].order; });
    for (size_t i = 0; i < names.size(); ++i) owners.emplace(names[i], ordered[i]);
    return owners;
  }

  bool AreReadersWithin(const std::set<Edge>& edges, std::string_view module) const {
    return std::ranges::all_of(edges, [&](const Edge& edge) {
      const std::optional<std::string_view> scope = ModuleOf(*calls_->nodes()[edge.node].node);
      return scope && IsWithin(*scope, module);
    });
  }

  // The node that computes an input of another one. Null: none does before it.
  const size_t* ProducerBefore(size_t id, const std::string& input) const {
    const size_t* const producer = calls_->ProducerOf(input);
    return producer != nullptr && *producer < id ? producer : nullptr;
  }

  bool IsCopied(size_t id, size_t twins) const { return std::ranges::binary_search(twins_of_[id], twins); }

  // The nodes that are copied for a module, from its layers to this one.
  std::set<size_t> Chain(size_t id, size_t twins) const {
    std::set<size_t> chain{id};
    std::vector<size_t> next{id};
    while (!next.empty()) {
      const size_t at = next.back();
      next.pop_back();
      for (const std::string& input : calls_->nodes()[at].node->input()) {
        const size_t* const producer = ProducerBefore(at, input);
        if (producer != nullptr && IsCopied(*producer, twins) && chain.insert(*producer).second) next.push_back(*producer);
      }
    }
    return chain;
  }

  bool MayCopy(const std::set<size_t>& chain, size_t twins, const std::set<Edge>& readers) const {
    const Edge first = std::ranges::min(readers, {}, [&](const Edge& edge) { return calls_->nodes()[edge.node].place; });
    return std::ranges::all_of(chain, [&](size_t node) {
      const auto& attributes = calls_->nodes()[node].node->attribute();
      // Tensors are known by their address, and graphs have names of their own.
      const auto is_plain = [](const onnx::AttributeProto& attribute) {
        return !attribute.has_t() && !attribute.has_g() && !attribute.has_sparse_tensor() && attribute.tensors().empty() &&
               attribute.graphs().empty() && attribute.sparse_tensors().empty();
      };
      if (!std::ranges::all_of(attributes, is_plain)) return false;
      const size_t number = calls_->nodes()[node].call;
      const auto layers = layers_.find(twins);
      if (layers == layers_.end() || !layers->second.contains(number)) return true;
      const TorchCalls::Call& layer = calls_->calls()[number];
      return layer.is_certain || calls_->LacksOneAfter(layer, calls_->nodes()[first.node].place);
    });
  }

  // A result of a merged node that readers have under this name.
  struct Wanted {
    std::string value, name;
    std::set<size_t> chain;
    size_t twins;
    const std::set<Edge>* readers;
  };

  void Copy() {
    // The first name that readers have for a copy's result is its own.
    for (const auto& [argument, tensor] : module_.arguments) arguments_.emplace(tensor, argument);
    for (const Wanted& wanted : wanted_) {
      std::string& own = names_[{wanted.value, wanted.twins}];
      if (own.empty() && edited_.Take(wanted.name)) own = wanted.name;
    }
    std::map<const onnx::NodeProto*, std::vector<onnx::NodeProto>> copies;  // by the node that they follow
    std::set<std::pair<size_t, size_t>> made;
    std::vector<std::pair<Edge, std::string>> inputs;
    for (const Wanted& wanted : wanted_) {
      for (const size_t node : wanted.chain) {
        if (made.emplace(node, wanted.twins).second) copies[calls_->nodes()[node].node].push_back(CopyOf(node, wanted.twins));
      }
      for (const Edge& edge : *wanted.readers) inputs.emplace_back(edge, NameOf(wanted.value, wanted.twins));
    }
    for (const auto& [edge, value] : inputs) calls_->nodes()[edge.node].node->set_input(edge.input, value);
    InsertAfter(std::move(copies), graph_);
  }

  // The name of a value that is copied for a module.
  const std::string& NameOf(const std::string& value, size_t twins) {
    std::string& name = names_[{value, twins}];
    if (name.empty()) name = edited_.TakeSimilar(value + "_" + Suffix(twins));
    return name;
  }

  // A part of a name in torch.export's graph.
  std::string Suffix(size_t twins) const {
    std::string suffix = twins_[twins].lost;
    std::ranges::replace(suffix, '.', '_');
    return suffix;
  }

  onnx::NodeProto CopyOf(size_t id, size_t twins) {
    const TorchCalls::FileNode& node = calls_->nodes()[id];
    const TorchCalls::Call& call = calls_->call_of(id);
    onnx::NodeProto copy = *node.node;
    if (!copy.name().empty()) copy.set_name(copy.name() + "_" + Suffix(twins));
    for (std::string& input : *copy.mutable_input()) {
      if (const size_t* const producer = ProducerBefore(id, input); producer != nullptr && IsCopied(*producer, twins))
        input = NameOf(input, twins);
    }
    for (std::string& output : *copy.mutable_output()) {
      if (!output.empty()) output = NameOf(output, twins);
    }
    // What the line names: the tensors of the other module, and the values of its nodes.
    std::string line;
    size_t at = 0;
    for (const std::string_view name : NamesOfCall(call.line)) {
      const auto begin = static_cast<size_t>(name.data() - call.line.data());
      line += call.line.substr(at, begin - at);
      line += NameInCopy(name, call, twins);
      at = begin + name.size();
    }
    line += call.line.substr(at);
    for (onnx::StringStringEntryProto& note : *copy.mutable_metadata_props()) {
      if (note.key() == kTorchSource) note.set_value(line);
      if (note.key() == kTorchScopes) note.set_value(ScopesOfCopy(note.value(), twins));
    }
    return copy;
  }

  std::string NameInCopy(std::string_view name, const TorchCalls::Call& call, size_t twins) {
    if (const auto found = module_.arguments.find(name); found != module_.arguments.end()) {
      const std::string other = InPlaceOf(found->second, twins_[twins].kept, twins_[twins].lost);
      return lost_.contains(other) ? arguments_.at(other) : std::string(name);
    }
    const size_t* const producer = calls_->ProducerOf(name);
    if (producer != nullptr && IsCopied(*producer, twins)) return NameOf(std::string(name), twins);
    return std::string(name) + (name == call.name ? "_" + Suffix(twins) : "");
  }

  // ['', 'blocks', 'blocks.1', 'blocks.1.ada', 'linear']
  std::string ScopesOfCopy(std::string_view scopes, size_t twins) const {
    std::string made;
    const std::string& kept = twins_[twins].kept;
    for (size_t at = 0; at < scopes.size();) {
      const bool begins = scopes[at] == '\'' && scopes.substr(at + 1).starts_with(kept);
      const char next = begins && at + 1 + kept.size() < scopes.size() ? scopes[at + 1 + kept.size()] : ' ';
      if (next == '\'' || next == '.') {
        made += "'" + twins_[twins].lost;
        at += 1 + kept.size();
      } else {
        made += scopes[at++];
      }
    }
    return made;
  }

  EditedGraph edited_;
  onnx::GraphProto& graph_;
  const ModuleSignature module_;
  std::optional<TorchCalls> calls_;
  NameSet lost_;
  std::map<std::string, size_t> order_;                      // of the module's tensors
  std::map<std::string, std::vector<std::string>> similar_;  // of these, by pattern
  std::map<std::string, std::string> arguments_;             // the names in torch.export's graph, by tensor of the module
  size_t pairs_ = 0;                                         // that were looked at
  std::vector<Twins> twins_;
  std::map<std::pair<std::string, std::string>, size_t> numbers_;  // of twins, by their names
  std::map<size_t, std::set<size_t>> layers_;                      // by twins: the calls that read parameters of the kept one
  std::vector<std::vector<size_t>> twins_of_;                      // by node, sorted
  std::vector<Wanted> wanted_;
  std::map<std::pair<std::string, size_t>, std::string> names_;  // of copied values, by value and twins
};

}  // namespace

void SeparateNodes(ModelFile& file) { Separator(file).Run(); }

}  // namespace gradloom
