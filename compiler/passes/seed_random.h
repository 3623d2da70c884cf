// Makes random operators depend on the run's seed and the batch number.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "compiler/graph/builder.h"

namespace gradloom {

// Rewrites ONNX's RandomUniform, RandomNormal, their Like forms, Bernoulli and Multinomial to our operators
// of the same names, which read the step parameters. An attribute `seed` becomes part of the node's key.
void SeedRandom(GraphBuilder& builder);

using NodePredicate = std::function<bool(const Node&)>;

// Gives the bodies of a branch or a loop the seed and the batch number (StepParam finds them there) where one of them has a node that
// draws; bodies within them have to get theirs after it. A loop carries the seed, so that each round has another one. `node` is being taken
// out of the builder's graph; `loops`: how many loops are around it.
void SeedBodies(GraphBuilder& builder, Node& node, const NodePredicate& draws, int loops);

// What a node's origin adds to the key of its random numbers: the same on every machine.
int64_t OriginKey(const std::string& origin);

}  // namespace gradloom
