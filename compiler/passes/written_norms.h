// Normalizations that a file holds as sums and products instead of one operator.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"

namespace gradloom {

// Constants that normalize and are no weights, each with the reason in words. They are known by what is computed of them, since files of
// other exporters than PyTorch's have no names that tell:
// - running variances: a small number is added, then comes a root;
// - running means: subtracted from a value that is then scaled by what is computed of a running variance, or scaled so themselves and
//   then subtracted; where the exporter has folded the variance into a scale, subtracted in front of a scale and a bias of the same size;
// - mean and deviation of the data: subtracted from an input of the graph, which is then scaled;
// - the mean of pixels of 8 bits: subtracted from an input, and large in all its elements.
// `computed_from_constants` says it of each value.
std::map<ValueId, std::string> WrittenStatistics(const Graph& graph, const Uses& uses, const std::vector<bool>& computed_from_constants);

// How many normalizations with a running variance are written out.
int64_t CountWrittenNorms(const Graph& graph);

// Which values are computed from constants alone, without randomness.
std::vector<bool> ComputedFromConstants(const Graph& graph, Role constants = Role::kConst);

}  // namespace gradloom
