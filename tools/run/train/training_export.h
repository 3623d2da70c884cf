// Exports a run as an ONNX file that describes its own training.
#pragma once

#include <string>
#include <vector>

#include "compiler/onnx/export/export.h"
#include "runtime/plan/plan.h"
#include "tools/config/configuration.h"
#include "tools/run/train/stored_tensors.h"

namespace gradloom {

// Writes a run's model with its loss, gradients and updates as training_info, with the optimizer state and the number of updates that the
// run has reached (zeros if only weights are stored). For a run that used the file's own algorithm, that algorithm is written. `plan` and
// `configuration`: the run's; `weights`: the plan's among the stored ones (TypesOfWeights). `notes` receives lines for the screen. Throws
// Error(kUnsupported) for what an algorithm cannot express, with a remedy.
void ExportTraining(const Plan& plan, const StoredTensors& stored, const TrainedValues& weights, const Configuration& configuration,
                    const std::string& out, const ExportOptions& options, std::vector<std::string>& notes);

}  // namespace gradloom
