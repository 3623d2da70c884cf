// Runs that are used before they have ended.
#pragma once

#include <string>

#include "runtime/checkpoint/checkpoint.h"
#include "tools/run/train/run_folder.h"

namespace gradloom {

// A line for the screen about the state that is used: "weights runs/a/checkpoints/step-000013: the run is unfinished, at step 13, after 1
// of 30 epochs".
std::string UnfinishedNote(const RunFolder& run, const Checkpoint& checkpoint);

}  // namespace gradloom
