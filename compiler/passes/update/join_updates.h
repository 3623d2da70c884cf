// Joins the updates of several parameters into one launch.
#pragma once

#include <cstdint>

#include "compiler/passes/schedule/program_plan.h"

namespace gradloom {

// The elements that joined updates may have together. Their gradients are kept until the last one is ready: 16 MiB in 16 bits, and about as
// much as a layer of a transformer of 768 numbers has.
inline constexpr int64_t kJoinedElements = int64_t{1} << 23;
// Above this many elements, an update takes longer than its launch.
inline constexpr int64_t kSmallUpdateElements = int64_t{1} << 16;

// For GPUs, where each launch takes some microseconds: updates of parameters by one optimizer with the same options become
// gradloom.MultiTensorUpdate, at most 32 each and as many as have `joined_elements` together, at the position of the last of them; moving
// averages go to the end first. Parameters of more than `each_elements` are left alone. No bit changes. Layouts must be assigned.
void JoinUpdates(Graph& graph, const ProgramPlan& plan, int64_t each_elements = kJoinedElements, int64_t joined_elements = kJoinedElements);

}  // namespace gradloom
