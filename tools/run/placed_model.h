// Where the parts of a run's or a plan's model are, for ONNX's annotations.
#pragma once

#include <string>

#include "compiler/onnx/device_annotations.h"
#include "runtime/plan/plan.h"
#include "tools/config/configuration.h"

namespace gradloom {

// Compiles the plan's model once more by the configuration of its run, whose placement is the same again. Throws Error(kUnsupported) where
// samples are gathered on one device, which annotations do not say.
DevicePlacement PlacementOf(const Plan& plan, const std::map<std::string, Tensor>& values, const Configuration& configuration);

}  // namespace gradloom
