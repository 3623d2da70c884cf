// Which numbers the columns of a model may hold, beyond the classes of targets (class_range.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/data/dataset.h"
#include "runtime/plan/loss_info.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// The numbers for which a loss is defined.
struct ValueDomain {
  std::string loss;
  double lowest = 0, highest = 1;
  // Whether 0 is allowed but hardly meant: hinge takes -1 and 1, and gives 0 a constant loss.
  bool doubts_zero = false;
};

// The domain of a loss's target; nullopt if every number has a meaning, or if the target holds classes.
std::optional<ValueDomain> DomainOf(const LossInfo& loss);

// What the rows of one column must keep to.
struct ValueRules {
  int64_t index_extent = 0;  // Feed::index_extent
  std::optional<ValueDomain> domain;

  bool empty() const { return index_extent == 0 && !domain; }
};

// Throws Error(kData) for the first of these rows with a number that the column must not hold. `first`: the number of the first row in the
// file; -1: unknown, because the rows have been chosen or transformed. `file`: shown as its place.
void CheckValues(const ValueRules& rules, const std::string& column, const TensorView& rows, int64_t first, const std::string& file);

// A line about numbers that the column may hold but that hardly mean what they say; empty if it has none.
std::string DoubtOf(const ValueRules& rules, const std::string& column, const TensorView& rows);

// Checks the columns in memory of one file, and adds what is doubtful to `notes`. `transformed`: whether a
// column has transforms; what these make of its targets is not known yet.
void CheckColumns(const Dataset& data, const std::vector<Feed>& feeds, const std::map<std::string, ValueDomain>& domains,
                  const std::function<bool(const std::string&)>& transformed, const std::string& file, std::vector<std::string>& notes);

}  // namespace gradloom
