// The pass add_optimizer: what an entry does with its gradients.
#pragma once

#include "compiler/passes/pipeline.h"

namespace gradloom {

// The number of copies of the model among the devices.
int CopiesOfModel(const PassContext& context);

// Appends the updates of the entry, or adds its gradients to the accumulated ones; an entry that evaluates or predicts gets nothing. The
// norm of the gradients, if it is computed, becomes an output.
void RunAddOptimizer(PassContext& context);

}  // namespace gradloom
