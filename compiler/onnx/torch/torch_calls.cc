#include "compiler/onnx/torch/torch_calls.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "compiler/onnx/standard_domain.h"
#include "compiler/onnx/torch/torch_source.h"

namespace gradloom {
namespace {

// %add : [num_users=2] = call_function[...
int64_t UsersIn(std::string_view line) {
  constexpr std::string_view kUsers = " : [num_users=";
  const size_t at = line.find(kUsers);
  int64_t users = 0;
  if (at != std::string_view::npos) std::from_chars(line.data() + at + kUsers.size(), line.data() + line.size(), users);
  return users;
}

constexpr std::string_view kElement = "getitem";

// Of inputs and operands of one call; one that has more was not written by an exporter.
constexpr size_t kMostComparisons = 1'000'000;

}  // namespace

TorchCalls::TorchCalls(EditedGraph& edited, const ModuleSignature& module) : edited_(edited), module_(module) {
  for (const onnx::ValueInfoProto& output : edited_.proto().output()) outputs_.insert(output.name());
  Read(edited_.proto(), -1);
  for (const Call& call : calls_) FindRenamed(call);
  FindRenamedOutputs();
  DropOwnNames();
  // From the end, since a call that was merged is one of several readers of what it reads.
  std::vector<Call*> order;
  for (Call& call : calls_) order.push_back(&call);
  std::ranges::stable_sort(order, std::greater(), [&](const Call* call) { return nodes_[call->nodes.back()].place; });
  for (Call* call : order) CountMerged(*call);
}

void TorchCalls::Read(onnx::GraphProto& graph, int place) {
  const bool is_nested = place >= 0;
  for (int i = 0; i < graph.node_size(); ++i) {
    onnx::NodeProto& node = *graph.mutable_node(i);
    const int at = is_nested ? place : i;
    const std::string_view line = TorchSource(node);
    // A node without a line is a call of its own.
    const auto [found, fresh] = line.empty() ? std::pair(by_line_.end(), true) : by_line_.emplace(line, calls_.size());
    if (fresh) {
      Call& call = calls_.emplace_back(Call{.line = line});
      const std::vector<std::string_view> names = NamesOfCall(line);
      if (line.starts_with('%') && !names.empty()) {
        call.name = names.front();
        call.operands.assign(names.begin() + 1, names.end());
        call.users = UsersIn(line);
      }
    }
    const size_t call = fresh ? calls_.size() - 1 : found->second, id = nodes_.size();
    calls_[call].nodes.push_back(id);
    nodes_.push_back({&node, call, at, is_nested});
    for (const std::string& input : node.input()) {
      if (!input.empty()) readers_[input].push_back(id);
    }
    const auto see = [&](std::string_view name) {
      if (name.empty() || !seen_.emplace(name).second) return;
      const CallName parts(name);
      numbers_[std::string(parts.base)].emplace(parts.number, at);
    };
    see(calls_[call].name);
    for (const std::string& output : node.output()) {
      see(output);
      // A name that a nested graph has too is ambiguous.
      if (!is_nested && !output.empty() && !producers_.emplace(output, id).second) producers_[output] = SIZE_MAX;
      if (is_nested) producers_[output] = SIZE_MAX;
    }
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) Read(*attribute.mutable_g(), at);
      for (onnx::GraphProto& nested : *attribute.mutable_graphs()) Read(nested, at);
    }
  }
}

const size_t* TorchCalls::ProducerOf(std::string_view value) const {
  const auto found = producers_.find(value);
  return found == producers_.end() || found->second == SIZE_MAX ? nullptr : &found->second;
}

const TorchCalls::Renamed* TorchCalls::RenamedOf(std::string_view value) const {
  const auto found = renamed_.find(value);
  return found == renamed_.end() ? nullptr : &found->second;
}

bool TorchCalls::HasOwnReaders(const std::string& value) const {
  if (outputs_.contains(value)) return true;
  const auto readers = readers_.find(value);
  if (readers == readers_.end()) return false;
  size_t renamed = 0;
  if (const Renamed* const names = RenamedOf(value)) {
    for (const auto& [name, edges] : *names) renamed += edges.size();
  }
  return readers->second.size() > renamed;
}

// Whether the file has nothing of that name.
bool TorchCalls::IsGone(std::string_view name) const {
  return !seen_.contains(name) && !module_.arguments.contains(name) && !edited_.IsTaken(std::string(name));
}

// Whether a value of the file has this name in torch.export's graph, too. That of an output may be another one.
bool TorchCalls::IsNamed(std::string_view value, std::string_view name) const {
  const size_t* const producer = ProducerOf(value);
  return value == name || (producer != nullptr && call_of(*producer).name == name);
}

// Whether a value may be the result of a call of that name and of other calls of its operator.
bool TorchCalls::IsOfKind(std::string_view value, std::string_view name) const {
  const size_t* const producer = ProducerOf(value);
  if (producer == nullptr) return false;
  const std::string_view base = CallName(name).base;
  if (IsElement(*producer)) return base == kElement;
  return base == CallName(value).base || base == CallName(call_of(*producer).name).base;
}

// Whether the values of a node are elements of a list. The exporter makes a Split without a line of a split, whose readers name getitem_2.
bool TorchCalls::IsElement(size_t node) const { return call_of(node).line.empty() && nodes_[node].node->output_size() > 1; }

void TorchCalls::FindRenamed(const Call& call) {
  std::set<std::string_view> gone;
  std::map<std::string_view, int> of_base;
  for (const std::string_view operand : call.operands) {
    if (IsGone(operand) && gone.insert(operand).second) ++of_base[CallName(operand).base];
  }
  if (gone.empty()) return;
  const auto input_of = [&](const Edge& edge) -> const std::string& { return nodes_[edge.node].node->input(edge.input); };
  std::vector<Edge> edges;  // what the call reads
  std::set<std::string_view> made;
  for (const size_t id : call.nodes) made.insert(nodes_[id].node->output().begin(), nodes_[id].node->output().end());
  for (const size_t id : call.nodes) {
    for (int i = 0; i < nodes_[id].node->input_size(); ++i) {
      const std::string& input = nodes_[id].node->input(i);
      if (!input.empty() && !made.contains(input)) edges.push_back({id, i});
    }
  }
  // By position, if all others fit theirs.
  bool is_ordered = call.nodes.size() == 1 && edges.size() == call.operands.size();
  for (size_t i = 0; is_ordered && i < edges.size(); ++i) {
    const std::string& input = input_of(edges[i]);
    const std::string_view operand = call.operands[i];
    is_ordered = IsGone(operand) ? IsOfKind(input, operand) : IsNamed(input, operand) || edited_.Find(input) != nullptr;
  }
  if (is_ordered) {
    for (size_t i = 0; i < edges.size(); ++i) {
      if (IsGone(call.operands[i])) renamed_[input_of(edges[i])][std::string(call.operands[i])].insert(edges[i]);
    }
    return;
  }
  // Otherwise the only one of its operator that has no name of the call.
  if (edges.size() > kMostComparisons / call.operands.size()) return;
  std::erase_if(edges, [&](const Edge& edge) {
    return std::ranges::any_of(call.operands, [&](std::string_view operand) { return IsNamed(input_of(edge), operand); });
  });
  for (const std::string_view name : gone) {
    if (of_base[CallName(name).base] != 1) continue;
    std::vector<Edge> fitting;
    std::ranges::copy_if(edges, std::back_inserter(fitting), [&](const Edge& edge) { return IsOfKind(input_of(edge), name); });
    if (fitting.empty() || std::ranges::any_of(fitting, [&](const Edge& edge) { return input_of(edge) != input_of(fitting[0]); })) continue;
    renamed_[input_of(fitting[0])][std::string(name)].insert(fitting.begin(), fitting.end());
  }
}

// An output that was merged with another one is an Identity of it.
void TorchCalls::FindRenamedOutputs() {
  const onnx::GraphProto& graph = edited_.proto();
  if (std::ssize(module_.outputs) != graph.output_size()) return;
  for (int i = 0; i < graph.output_size(); ++i) {
    const std::string& name = module_.outputs[static_cast<size_t>(i)];
    const size_t* const id = ProducerOf(graph.output(i).name());
    if (id == nullptr || (name != graph.output(i).name() && !IsGone(name))) continue;
    const onnx::NodeProto& node = *nodes_[*id].node;
    if (!IsStandard(node, "Identity") || node.input_size() != 1 || !call_of(*id).line.empty()) continue;
    if (IsOfKind(node.input(0), name)) renamed_[node.input(0)][name].insert({*id, 0});
  }
}

// Of the names of an element, the first is its own.
void TorchCalls::DropOwnNames() {
  for (auto& [value, names] : renamed_) {
    if (!IsElement(*ProducerOf(value))) continue;
    names.erase(std::ranges::min_element(names, {}, [](const auto& entry) { return CallName(entry.first).number; }));
  }
  std::erase_if(renamed_, [](const auto& entry) { return entry.second.empty(); });
}

void TorchCalls::CountMerged(Call& call) {
  const size_t own = nodes_[call.nodes.front()].call;
  bool is_list = false;  // whether what reads the result are the elements that it has
  int64_t names = 1, users = 0, certain_users = 0, most = 1;
  std::set<size_t> all;
  for (const size_t id : call.nodes) {
    const onnx::NodeProto& node = *nodes_[id].node;
    is_list = is_list || node.output_size() > 1;
    for (const std::string& output : node.output()) {
      const Renamed* const renamed = RenamedOf(output);
      int64_t here = renamed == nullptr ? 1 : 1 + std::ssize(*renamed);
      names = std::max(names, here);
      const auto readers = readers_.find(output);
      if (readers == readers_.end()) continue;
      for (const size_t reader : readers->second) {
        const size_t by = nodes_[reader].call;
        if (by == own) continue;
        here = std::max(here, calls_[by].merged);
        if (!all.insert(by).second || node.output_size() > 1) continue;
        // A node without a line may be a part of a call that reads the value elsewhere.
        const int64_t first = calls_[by].line.empty() && readers->second.size() > 1 ? 0 : 1;
        users += calls_[by].merged - 1 + first;
        certain_users += (calls_[by].is_certain ? calls_[by].merged : 1) - 1 + first;
      }
      if (outputs_.contains(output)) ++users, ++certain_users;
      if (node.output_size() > 1) users += here;
      most = std::max(most, here);
    }
  }
  call.merged = names;
  if (call.users == 0) {
    call.merged = std::max(names, most);
  } else if (users > call.users) {
    call.merged = std::max(names, (users + call.users - 1) / call.users);
  }
  call.is_certain = names > 1 || (!is_list && call.users > 0 && certain_users > call.users);
}

bool TorchCalls::LacksOneAfter(const Call& call, int place) const {
  const CallName name(call.name);
  const auto found = numbers_.find(name.base);
  if (found == numbers_.end()) return false;
  int64_t between = 0;
  for (auto at = found->second.upper_bound(name.number); at != found->second.end(); ++at, ++between) {
    if (at->second > place) return at->first - name.number - 1 > between;
  }
  return false;
}

}  // namespace gradloom
