// Tensors of a file that hold a copy of one weight for each sample, as exporters write them that fold an Expand. Private to compiler/onnx.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "compiler/graph/graph.h"
#include "compiler/onnx/model_file.h"

namespace gradloom {

// Whether a floating-point tensor of the file repeats along some axis as often as it would for this many samples.
bool MayHoldCopies(const ModelFile& file, int64_t batch);

// The names of tensors that are certainly copies, even if no import has shown it: their elements vary within a sample, and repeat for each
// sample.
std::set<std::string> EvidentCopies(const ModelFile& file, int64_t batch);

// The names of tensors of copies that are not replaced by one weight: at this batch size, and even at the file's own.
struct Unshared {
  std::set<std::string> here, anywhere;
};

// Replaces each of the tensors, which hold copies as BatchObserver has found, by one weight, if all its readers take the same copy. At the
// file's own batch size (`own_batch`), other readers get all copies, which are then computed from the weight.
Unshared ShareCopies(Graph& graph, const std::set<std::string>& copies, bool own_batch);

// The warning that these tensors are copies of one weight but are trained separately.
std::string WarningOfCopies(const std::set<std::string>& names, int64_t batch);

}  // namespace gradloom
