// Model parallelism: places the nodes of a model on devices, and makes the graphs of the devices.
//
// A *stage* is the part of one device in a copy of the model. Stages are numbered like the devices of the first copy. If there are more
// devices, they hold further copies, which share each batch.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/passes/loss/loss_nodes.h"
#include "compiler/passes/recipe.h"

namespace gradloom {

// Whether it is a parameter or a state with its value before the step.
inline bool IsKept(const Value& value) { return (value.role == Role::kParam || value.role == Role::kState) && value.next_of == kNoValue; }

// Where the parts of a model are. Decided for one entry, and used for all.
struct Stages {
  int count = 1;
  std::map<std::string, int> of_node;   // by the name of a node of the model
  std::map<std::string, int> of_state;  // the stage that holds it: parameters, statistics, optimizer state
  std::vector<bool> fitted;             // by rule: whether it has matched anything
  bool checked = false;                 // whether each rule was found to match something
};

// The two stages if samples are gathered on one device (gather_tail): the part that all devices have copies of, and the part of that
// device.
inline constexpr int kTrunk = 0, kTail = 1;
// Whether the node passes a value between trunk and tail, to the stage of the node.
inline bool IsBoundary(const Node& node) {
  return node.domain == kGradloomDomain && (node.op == "GatherSamples" || node.op == "ScatterSamples");
}

// The number of stages in the rules.
int CountStages(const std::vector<PlaceRule>& rules);

// Sets `device` of every node to its stage. A node of the model goes where the first rule says that matches its name or that of a weight
// that it reads. A node that no rule matches goes where its operands are produced; the last of them decides. Feeds count as produced on the
// first device. Values computed only from weights, or only from feeds, go where they are read first. Gradients are placed with their node.
// A parameter and its states are kept where the parameter is read first, and updated there. Nodes that have a `device` keep it. Names in
// `stages` take precedence over rules; new names are added. Throws Error(kConfig) for a rule that matches nothing, unless they were
// checked.
void PlaceDevices(Graph& graph, const std::vector<PlaceRule>& rules, Stages& stages);

// The same for a model alone, before its layers are fused, so that rules see the names of the file. Where a stage reads what another one
// computes, it reads a gradloom.StageBoundary, through which no pattern of a layer matches, so each layer is on one stage when it is fused.
// What feeds and constants alone decide, such as masks, needs none. Rules are not checked, as they may be meant for the loss.
void PlaceModel(Graph& graph, const std::vector<PlaceRule>& rules, Stages& stages);

// Lets readers of a gradloom.StageBoundary read its operand again.
void DropBoundaries(Graph& graph);

// If the terms of the loss, the graph's first output, are computed on several stages, the sum is no output any more, and only the terms
// are, so that stages that share nothing else need not communicate for it.
void PartLoss(Graph& graph, const LossNodes& loss);

// Splits a graph whose nodes are placed into the graphs of the stages, and passes each to `take` in turn: there is one at a time, because
// each has all values. Each has its own nodes, and gradloom.Send and gradloom.Recv where a
// value is produced on one stage and read on another. A parameter is sent once per step, before it is first read. All transfers and
// collectives are in one order over all stages, so no two stages wait for each other. Values keep their ids. Each graph has all inputs, and
// as outputs those that it computes.
void SplitStages(const Graph& graph, const Stages& stages, const std::function<void(int stage, Graph& own)>& take);

}  // namespace gradloom
