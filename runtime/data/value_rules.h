// Which numbers the columns of a model may hold, beyond the classes of targets (class_range.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/data/dataset.h"
#include "runtime/plan/loss_info.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// The numbers that a loss is meant for. Its formula may have a value for others, as it has for noisy labels, so they are only doubtful.
struct ValueDomain {
  std::string loss;
  double lowest = 0, highest = 1;
  // Whether 0 is within but hardly meant: hinge takes -1 and 1, and gives 0 a constant loss.
  bool doubts_zero = false;
};

// The domain of a loss's target; nullopt if every number has a meaning, or if the target holds classes.
std::optional<ValueDomain> DomainOf(const LossInfo& loss);

// Throws Error(kData) for the first of these rows with an index that a weight of `extent` rows lacks (Feed::index_extent; 0: any may
// follow). `first`: the number of the first row in the file. `file`: shown as its place.
void CheckIndices(int64_t extent, const std::string& column, const TensorView& rows, int64_t first, const std::string& file);

// Checks the indices among the columns in memory of one file, and notes those that are negative.
void CheckIndexColumns(const Dataset& data, const std::vector<Feed>& feeds, const std::string& file, std::vector<std::string>& notes);

// Notes the first target of each column in memory, after its transforms, that its loss is not meant for.
void NoteTargets(const Dataset& data, const std::map<std::string, ValueDomain>& domains, std::vector<std::string>& notes);

}  // namespace gradloom
