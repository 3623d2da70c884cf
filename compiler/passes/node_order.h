// In which order nodes happen: on streams and by events, not by their place in the list.
#pragma once

#include <limits>
#include <vector>

#include "compiler/passes/program_plan.h"

namespace gradloom {

// Whether the node launches nothing: its output lies on its input.
bool IsView(const Node& node);

// Whether all devices do it together.
bool IsMeeting(const Node& node);

// Whether it copies an input before the step.
inline bool IsInputCopy(const Node& node) { return node.phase == Phase::kCopy; }

// By node: the nodes that must have ended when it begins, in ascending order, each once: who makes what it reads, views
// looked through, and for the next value of a state who reads the old one and comes before it in the list; for an update who may refuse the
// batch (refusals.h), here and, by the next meeting, on other devices. Empty for a view.
std::vector<std::vector<int>> DependenciesOf(const Graph& graph);

// How far into each stream something reaches: by stream the place, from 1, of its last use there.
using Reach = std::vector<int>;
inline constexpr int kForever = std::numeric_limits<int>::max();

// Streams run their nodes in the order of the list; a wait puts a node of one behind a node of another. By vector
// clocks: for each node how many of each stream's are before it.
class NodeOrder {
 public:
  // Uses plan.stream and plan.waits.
  NodeOrder(const Graph& graph, const ProgramPlan& plan);

  int num_streams() const { return streams_; }
  int stream(int node) const { return stream_[static_cast<size_t>(node)]; }
  // Within its stream, from 1.
  int place(int node) const { return place_[static_cast<size_t>(node)]; }

  // Whether node a has ended when b begins.
  bool Before(int a, int b) const { return place(a) <= Seen(b, stream(a)); }
  // Whether all that `reach` covers has ended when the node begins; `or_is_it`: or is the node itself.
  bool AllBefore(const Reach& reach, int node, bool or_is_it) const;

  // Lets `reach` cover a node.
  void Extend(Reach& reach, int node) const;

 private:
  // How many nodes of the stream have ended when b begins.
  int Seen(int b, int stream) const {
    return clocks_[static_cast<size_t>(b) * static_cast<size_t>(streams_) + static_cast<size_t>(stream)];
  }

  int streams_;
  std::vector<int> stream_, place_;
  std::vector<int> clocks_;  // streams_ numbers a node
};

}  // namespace gradloom
