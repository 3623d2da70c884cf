// Makes random operators depend on the run's seed and the batch number.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/graph/builder.h"

namespace gradloom {

// Rewrites ONNX's RandomUniform, RandomNormal, their Like forms, Bernoulli and Multinomial to our operators
// of the same names, which read the step parameters. An attribute `seed` becomes part of the node's key.
void SeedRandom(GraphBuilder& builder);

// What a node's origin adds to the key of its random numbers: the same on every machine.
int64_t OriginKey(const std::string& origin);

}  // namespace gradloom
