// The pass add_loss: the loss of an entry.
#pragma once

#include "compiler/passes/pipeline.h"

namespace gradloom {

// Appends the losses of the recipe, or takes that of the file's own algorithm, and sets context.loss. Loss and terms become the first
// outputs; entries that train have no others, unless they return the model's. Entries without a loss stay as they are. Throws what AddLoss
// throws, and Error(kShape) if the file's loss is not a scalar.
void RunAddLoss(PassContext& context);

// Binds the states of the file's own algorithm to their next values.
void BindFileUpdates(PassContext& context);

}  // namespace gradloom
