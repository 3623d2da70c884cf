// The 16-bit copies of float32 parameters as state.
#pragma once

#include "compiler/graph/builder.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// Replaces casts of parameters, or of views of them, to 16 bits by states that contain the rounded parameters (Value::rounded_of,
// StateKind::kWeightCopy). The update that makes a parameter's next value also writes its copies' (kernels/catalog/update.h), so a step
// casts no parameter. The bits are those of the casts.
//
// A parameter has a copy in all entries or in none. The first training entry decides: entries of `plan` that know the parameter already
// have no more copies than those that it lists. `trains`: whether the entry is one whose parameters are updated, by itself or by another
// entry. A parameter keeps at most one copy. Call it before nodes are ordered, because updates must come after the readers of copies.
void KeepWeightCopies(GraphBuilder& builder, const Plan& plan, bool trains);

}  // namespace gradloom
