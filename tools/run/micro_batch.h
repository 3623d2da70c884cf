// --micro-batch: what a device has under way at once, as a size of batches and a number of them to an update.
#pragma once

#include "tools/config/configuration.h"

namespace gradloom {

// Sets data.batch to the samples that all copies of the model have under way at once, and train.accumulate to the number of those that make
// up what data.batch asked for; data.micro_batch is then as if nobody had given it. Throws Error(kConfig) where the global batch is not
// given or no multiple of the other.
void ApplyMicroBatch(Configuration& configuration);

}  // namespace gradloom
