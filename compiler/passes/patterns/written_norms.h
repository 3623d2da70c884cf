// Recognizes normalizations that a file decomposes into sums and products.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"

namespace gradloom {

// Constants that normalize and are not weights, each with the reason in words. They are recognized by what is computed from them, since
// files of exporters other than PyTorch's have no telling names:
// - running variances: a small number is added, then comes a root;
// - running means: subtracted from a value that is then scaled by what is computed of a running variance, or scaled so themselves and
//   then subtracted; where the exporter has folded the variance into a scale, subtracted in front of a scale and a bias of the same size;
// - mean and deviation of the data: subtracted from an input of the graph, which is then scaled;
// - the mean of pixels of 8 bits: subtracted from an input, and large in all its elements.
// `computed_from_constants`: for each value, whether it is.
std::map<ValueId, std::string> WrittenStatistics(const Graph& graph, const Uses& uses, const std::vector<bool>& computed_from_constants);

// The number of decomposed normalizations with a running variance.
int64_t CountWrittenNorms(const Graph& graph);

// By value: whether it is computed from constants only, without randomness.
std::vector<bool> ComputedFromConstants(const Graph& graph, Role constants = Role::kConst);

}  // namespace gradloom
