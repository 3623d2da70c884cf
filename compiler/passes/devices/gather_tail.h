// Splits a model into a replicated trunk and a tail on one device. Each device computes the trunk for its samples. One device gathers the
// results, computes the rest for the whole batch, and returns to each its part of the gradient.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/passes/devices/replicate_data.h"

namespace gradloom {

// Assigns to the tail the nodes of the forward pass with these origins, and all that read their results. Nodes with one origin are on one
// side.
void AssignTail(const Graph& graph, const std::set<std::string>& origins, Stages& stages);

// Inserts gradloom.GatherSamples where the tail reads a result of the trunk or a feed, and gradloom.ScatterSamples where the trunk reads a
// result or state of the tail: after the producer, or before the first reader. Nodes must be placed.
void MarkTail(Graph& graph, const Stages& stages);

// The part that device `me` runs of a device graph that was made from a marked graph and has shards[me].length samples, or the whole batch
// if it is not divided. Device `tail` has the tail. Peer slots: that device has all devices by their numbers; every other device has the
// tail as its first.
std::unique_ptr<Graph> TailPart(const Graph& graph, const TypeRules& rules, const std::vector<BatchShard>& shards, size_t me, size_t tail);

}  // namespace gradloom
