// A run as an ONNX file that says itself how it is trained.
#pragma once

#include <string>
#include <vector>

#include "compiler/onnx/export.h"
#include "tools/run/trained_model.h"

namespace gradloom {

// Writes the run's model with its loss, gradients and updates as training_info, states of the optimizer and the number of updates as the
// run has reached them (zeros where `source` names weights alone); of a run by the file's own algorithm, that. `notes` gets what is worth a
// line on the screen. `source` is the folder of a run, `configuration` its own. Throws Error(kUnsupported) for what an algorithm cannot
// say, with what to do.
void ExportTraining(const TrainedSource& source, const Configuration& configuration, const std::string& out, const ExportOptions& options,
                    std::vector<std::string>& notes);

}  // namespace gradloom
