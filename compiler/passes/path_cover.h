// Covers a partial order by the fewest chains.
#pragma once

#include <cstddef>
#include <vector>

namespace gradloom {

// Removes each dependency that the others imply. dependencies[i]: nodes before i, ascending, all below i. Above kMaxReduced nodes, where
// the table of all ancestors would be too large, removes only those implied through a single node.
std::vector<std::vector<int>> TransitiveReduction(const std::vector<std::vector<int>>& dependencies);
inline constexpr size_t kMaxReduced = 1 << 15;

// A minimum path cover: by node its predecessor on its path, or -1 if it begins a path. No two nodes have the same predecessor. Uses a
// maximum matching (Hopcroft and Karp 1973) of nodes with successors.
std::vector<int> MinimumPathCover(const std::vector<std::vector<int>>& dependencies);

}  // namespace gradloom
