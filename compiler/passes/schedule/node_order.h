// The order in which nodes run: by streams and events, not by their position in the list.
#pragma once

#include <limits>
#include <vector>

#include "compiler/passes/schedule/program_plan.h"

namespace gradloom {

// Whether the node launches nothing because its output shares the memory of its input.
bool IsView(const Node& node);

// Whether it is a collective.
bool IsCollective(const Node& node);

// Whether it sums values over the devices that share the batch, for all of them.
inline bool IsAllReduce(const Node& node) { return node.op == "AllReduce" && node.domain == kGradloomDomain; }

// Whether it sums values over them, each for one of them.
inline bool IsReduce(const Node& node) { return node.op == "Reduce" && node.domain == kGradloomDomain; }

// Whether it passes on a value of one device to those that share the batch with it.
inline bool IsBroadcast(const Node& node) { return node.op == "Broadcast" && node.domain == kGradloomDomain; }

// Whether it copies an input before the step.
inline bool IsInputCopy(const Node& node) { return node.phase == Phase::kCopy; }

// By node: the nodes that must have finished when it begins, ascending, each once. These are the producers of its operands (looking through
// views); for the next value of a state, the readers of the old value that precede it in the list; and for an update, the nodes that may
// refuse the batch (refusals.h), here and, through the next collective, on other devices. Empty for a view.
std::vector<std::vector<int>> DependenciesOf(const Graph& graph);

// The extent of a use on each stream: by stream the position, from 1, of its last use there.
using Reach = std::vector<int>;
inline constexpr int kForever = std::numeric_limits<int>::max();

// Streams run their nodes in the order of the list; a wait orders a node of one stream after a node of another. Uses vector clocks: for
// each node, how many nodes of each stream precede it.
class NodeOrder {
 public:
  // Uses plan.stream and plan.waits.
  NodeOrder(const Graph& graph, const ProgramPlan& plan);

  int num_streams() const { return streams_; }
  int stream(int node) const { return stream_[static_cast<size_t>(node)]; }
  // Within its stream, from 1.
  int place(int node) const { return place_[static_cast<size_t>(node)]; }

  // Whether node a has ended when b begins.
  bool Before(int a, int b) const { return place(a) <= NumEnded(b, stream(a)); }
  // Whether everything that `reach` covers has ended when the node begins; with `or_equal`, or is the node itself.
  bool AllBefore(const Reach& reach, int node, bool or_equal) const;

  // By stream: its first node that begins after everything that `reach` covers has ended; kForever if there is none. Views are not counted.
  std::vector<int> FirstAfter(const Reach& reach) const;

  // Extends `reach` to cover a node.
  void Extend(Reach& reach, int node) const;

 private:
  // Number of nodes of the stream that have ended when b begins.
  int NumEnded(int b, int stream) const {
    return clocks_[static_cast<size_t>(b) * static_cast<size_t>(streams_) + static_cast<size_t>(stream)];
  }

  int streams_;
  std::vector<int> stream_, place_;
  std::vector<int> clocks_;              // streams_ numbers per node
  std::vector<std::vector<int>> nodes_;  // by stream, without views
};

}  // namespace gradloom
