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

// Passes the seed and the batch number to the bodies of a branch or a loop (StepParam finds them there) if one of them has a node that
// draws. Inner bodies must be handled later. A loop carries the seed, so each iteration has another one. `node` is being removed from the
// builder's graph; `loops`: the number of enclosing loops.
void SeedBodies(GraphBuilder& builder, Node& node, const NodePredicate& draws, int loops);

// The part of the key of a node's random numbers that comes from its origin: the same on every machine.
int64_t OriginKey(const std::string& origin);

}  // namespace gradloom
