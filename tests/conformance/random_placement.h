// Random placements, to find plans that are correct only for sensible placements.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/compile.h"

namespace gradloom {

// Rules that assign each node of the model that remains in a plan for one device to a random stage, and use the last stage at least once.
// `options` has the entries to compile.
std::vector<PlaceRule> RandomPlacement(const Model& model, CompileOptions options, int stages, uint64_t seed);

}  // namespace gradloom
