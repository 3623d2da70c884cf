// --micro-batch: converts the number of samples that a device processes at once to a batch size and a number of batches per update.
#pragma once

#include "tools/config/configuration.h"

namespace gradloom {

// Sets data.batch to the number of samples that all copies of the model process at once, and train.accumulate to the number of such batches
// in the global batch, whose samples have the same weight (train.accumulate_by); data.micro_batch is reset. Throws Error(kConfig) if the
// global batch is not given or is not a multiple of that number.
void ApplyMicroBatch(Configuration& configuration);

}  // namespace gradloom
