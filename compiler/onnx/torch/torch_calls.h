// The calls of torch.export's graph, as far as a file of PyTorch's default exporter tells of them. Private to compiler/onnx.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/onnx/edited_graph.h"
#include "compiler/onnx/torch/module_signature.h"
#include "compiler/onnx/torch/torch_source.h"
#include "onnx/onnx_pb.h"

namespace gradloom {

// An input of a node.
struct Edge {
  size_t node;
  int input;
  auto operator<=>(const Edge&) const = default;
};

class TorchCalls {
 public:
  struct FileNode {
    onnx::NodeProto* node;
    size_t call;
    int place;       // in the main graph; of a nested node, that of the node that it belongs to
    bool is_nested;  // in another graph than the main one
  };
  // A call, and the nodes that the exporter made of it.
  struct Call {
    std::string_view line, name = {};             // empty: the file does not say
    std::vector<std::string_view> operands = {};  // names of values and those that stand for the module's tensors
    int64_t users = 0;                            // how many calls read its result in torch.export's graph; 0: unknown
    std::vector<size_t> nodes = {};
    int64_t merged = 1;       // how many calls the exporter seems to have made these nodes of
    bool is_certain = false;  // whether there were several: the readers have other names for the result, or are too many
  };
  // By the name in torch.export's graph: the inputs that have a value of that name there, and another one in the file.
  using Renamed = std::map<std::string, std::set<Edge>, std::less<>>;

  // Both must outlive it. The nodes must stay where they are in memory.
  TorchCalls(EditedGraph& edited, const ModuleSignature& module);

  const std::vector<FileNode>& nodes() const { return nodes_; }
  const std::vector<Call>& calls() const { return calls_; }
  const Call& call_of(size_t node) const { return calls_[nodes_[node].call]; }

  // The node of the main graph that computes a value. Null: none does, or it is ambiguous.
  const size_t* ProducerOf(std::string_view value) const;
  // The names that calls have for a value of the file that is the result of another call of the same operator. Null: none.
  const Renamed* RenamedOf(std::string_view value) const;
  // Whether any node reads the value under its own name, or the file does.
  bool HasOwnReaders(const std::string& value) const;

  // Whether torch.export's graph had a call of the same operator between this call and the place, that the file does not have.
  bool LacksOneAfter(const Call& call, int place) const;

 private:
  void Read(onnx::GraphProto& graph, int place);
  void FindRenamed(const Call& call);
  void FindRenamedOutputs();
  void DropOwnNames();
  void CountMerged(Call& call);
  bool IsGone(std::string_view name) const;
  bool IsOfKind(std::string_view value, std::string_view name) const;
  bool IsElement(size_t node) const;
  bool IsNamed(std::string_view value, std::string_view name) const;

  EditedGraph& edited_;
  const ModuleSignature& module_;
  std::vector<FileNode> nodes_;
  std::vector<Call> calls_;
  std::map<std::string_view, size_t> by_line_;
  std::map<std::string, size_t, std::less<>> producers_;
  std::map<std::string, std::vector<size_t>, std::less<>> readers_;     // nodes by value
  std::set<std::string, std::less<>> outputs_;                          // of the main graph
  std::set<std::string, std::less<>> seen_;                             // the names of calls and values
  std::map<std::string, std::map<int64_t, int>, std::less<>> numbers_;  // their places, by operator and number
  std::map<std::string, Renamed, std::less<>> renamed_;
};

}  // namespace gradloom
