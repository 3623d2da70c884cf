// Requests for entries that follow from those of a caller. Private to this directory.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/compile.h"

namespace gradloom {

// If the recipe accumulates, each training step becomes an accumulation, and one update is added. If devices hold partial sums, there is
// also an entry for the last batch, which all-reduces them during its backward pass. `copies`: of the model.
std::vector<EntryRequest> WithAccumulation(const CompileOptions& options, int copies);

// The entry for `size` samples instead of `batch`, to compare the two. If the extents given by name do not fit that batch size, some of
// them may be numbers of rows for each sample, or the batch under another name: the further requests have them in proportion, the fewest
// of them first.
std::vector<EntryRequest> RequestsAt(const CompileOptions& options, const EntryRequest& request, int64_t batch, int64_t size);

}  // namespace gradloom
