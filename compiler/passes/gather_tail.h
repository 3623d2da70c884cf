// A replicated trunk whose tail is on one device: each device has its samples up to there, and one of them gathers what they made,
// computes the rest for the whole batch, and gives each its part of the gradient.
#pragma once

#include <memory>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/passes/replicate_data.h"

namespace gradloom {

// Puts gradloom.GatherSamples where the tail reads what the trunk makes or what is fed, and gradloom.ScatterSamples where the trunk reads
// what the tail makes or keeps: next to what makes it, or before its first reader. Nodes must be placed.
void MarkTail(Graph& graph, const Stages& stages);

// What device `me` runs of a device graph that was made from a marked one and has shards[me].length samples, or the whole batch where it
// is not divided; device `tail` has the tail. Peers: that device's are all devices by their numbers, any other has it as its first.
std::unique_ptr<Graph> TailPart(const Graph& graph, const TypeRules& rules, const std::vector<BatchShard>& shards, size_t me, size_t tail);

}  // namespace gradloom
