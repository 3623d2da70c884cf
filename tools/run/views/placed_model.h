// The placement of a run's or plan's model, for ONNX's annotations.
#pragma once

#include <string>

#include "compiler/onnx/device_annotations.h"
#include "runtime/plan/plan.h"
#include "tools/config/configuration.h"

namespace gradloom {

// Compiles the plan's model again with the configuration of its run, which gives the same placement. Throws Error(kUnsupported) if samples
// are gathered on one device, which annotations cannot express.
DevicePlacement PlacementOf(const Plan& plan, const std::map<std::string, Tensor>& values, const Configuration& configuration);

}  // namespace gradloom
