// Predicts the benefit of more devices before anything runs.
#pragma once

#include <string>
#include <vector>

#include "compiler/compile.h"
#include "tools/config/configuration.h"

namespace gradloom {

// A line on what one device computes for the whole batch because the model relates samples (CompileReport::tail); "" if nothing.
std::string TailLine(const Configuration& configuration, const CompileReport& report, DeviceKind device);

// Adds the predicted time of a step on fewer devices, and a warning if they would be faster, to the notes; and what gathering samples on
// one device means for its memory. The devices are those of this machine, or of devices.topology. Nothing is predicted for one device, or
// if compilation would take noticeably long: over a second.
void AddForecast(const Configuration& configuration, const Model& model, const CompileOptions& options, const Plan& plan,
                 const CompileReport& report, std::vector<std::string>& notes);

}  // namespace gradloom
