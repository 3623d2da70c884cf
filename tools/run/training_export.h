// Exports a run as an ONNX file that describes its own training.
#pragma once

#include <string>
#include <vector>

#include "compiler/onnx/export/export.h"
#include "tools/run/trained_model.h"

namespace gradloom {

// Writes the run's model with its loss, gradients and updates as training_info, with the optimizer state and the number of updates that the
// run has reached (zeros if `source` has only weights). For a run that used the file's own algorithm, that algorithm is written. `notes`
// receives lines for the screen. `source` is the folder of a run, `configuration` that run's. Throws Error(kUnsupported) for what an
// algorithm cannot express, with a remedy.
void ExportTraining(const TrainedSource& source, const Configuration& configuration, const std::string& out, const ExportOptions& options,
                    std::vector<std::string>& notes);

}  // namespace gradloom
