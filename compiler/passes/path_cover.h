// The fewest chains that a partial order falls into.
#pragma once

#include <cstddef>
#include <vector>

namespace gradloom {

// Leaves out each dependency that the others imply. dependencies[i]: nodes before i, in ascending order, all below i.
// Above kMaxReduced nodes, where the table of all ancestors would be too large, only repeats by way of one node go.
std::vector<std::vector<int>> TransitiveReduction(const std::vector<std::vector<int>>& dependencies);
inline constexpr size_t kMaxReduced = 1 << 15;

// A minimum path cover: by node its predecessor on its path, or -1 where it begins one. No two nodes have the same
// predecessor. By a largest matching (Hopcroft and Karp 1973) of nodes with successors.
std::vector<int> MinimumPathCover(const std::vector<std::vector<int>>& dependencies);

}  // namespace gradloom
