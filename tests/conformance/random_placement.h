// Placements without sense, to find plans that only sensible ones give right.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/compile.h"

namespace gradloom {

// Rules that put each node of the model which a plan for one device still has on any of the stages, the last one among them.
// `options`: with the entries that are to be compiled.
std::vector<PlaceRule> RandomPlacement(const Model& model, CompileOptions options, int stages, uint64_t seed);

}  // namespace gradloom
