// Parts of a model on devices of their own: which node runs where, and the graphs of the devices that follow from it.
//
// A *stage* is what one device of a copy of the model does. Stages are numbered as the devices of the first copy are; where there are
// more devices, they hold further copies, which share each batch.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/passes/recipe.h"

namespace gradloom {

// Whether it is a parameter or a state as it is before the step.
inline bool IsKept(const Value& value) { return (value.role == Role::kParam || value.role == Role::kState) && value.next_of == kNoValue; }

// Which parts of a model are where: decided for one entry, it holds for all.
struct Stages {
  int count = 1;
  std::map<std::string, int> of_node;   // by the name of a node of the model
  std::map<std::string, int> of_state;  // who keeps it: parameters, statistics, what the optimizer keeps
};

// Where the samples are gathered on one device (gather_tail): what all devices have copies of, and what that one has.
inline constexpr int kTrunk = 0, kTail = 1;
// Whether a value passes from one to the other here, to the stage that the node is on.
inline bool IsBoundary(const Node& node) {
  return node.domain == kGradloomDomain && (node.op == "GatherSamples" || node.op == "ScatterSamples");
}

// How many stages the rules speak of.
int CountStages(const std::vector<PlaceRule>& rules);

// Sets `device` of every node to its stage. A node of the model goes where the first rule says that fits its name or that of a weight
// it reads; one that no rule fits goes where its operands are made, the last of them; what is fed is on the first device; and what is
// made of weights alone goes where it is read first. Gradients are made where their node is. A parameter and what belongs to it are kept
// where it is read first, and updated there. Nodes that have a `device` keep it, names in `stages` go before rules; new ones are added.
// Throws Error(kConfig) for a rule that fits nothing, where `stages` was empty.
void PlaceDevices(Graph& graph, const std::vector<PlaceRule>& rules, Stages& stages);

// The terms of the loss, the graph's first output, where they are made on several stages: they become outputs in its place, so that stages
// which share nothing else need not meet for it. Nodes of the model come before `first_loss_node`. Empty: nothing was changed.
std::vector<ValueId> PartLoss(Graph& graph, NodeId first_loss_node);

// The graphs of the stages, from one whose nodes are placed: each has its own nodes, and gradloom.Send and gradloom.Recv where a
// value is made on one stage and read on another; a parameter is sent once a step, before it is first read. All transfers and
// meetings are in one order over all stages, so that no two wait for each other. Values keep their ids, and each graph has
// all inputs; its outputs are those that it makes.
std::vector<std::unique_ptr<Graph>> SplitStages(const Graph& graph, const Stages& stages);

}  // namespace gradloom
