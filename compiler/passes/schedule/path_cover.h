// Covers a partial order by the fewest chains.
#pragma once

#include <vector>

namespace gradloom {

// Removes each dependency that the others imply. dependencies[i]: nodes before i, ascending, all below i.
std::vector<std::vector<int>> TransitiveReduction(const std::vector<std::vector<int>>& dependencies);

// A minimum path cover: by node its predecessor on its path, or -1 if it begins a path. No two nodes have the same predecessor. Uses a
// maximum matching (Hopcroft and Karp 1973) of nodes with successors.
std::vector<int> MinimumPathCover(const std::vector<std::vector<int>>& dependencies);

}  // namespace gradloom
