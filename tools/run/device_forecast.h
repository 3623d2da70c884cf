// Predicts the benefit of more devices before anything runs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "compiler/cost/cluster.h"
#include "tools/config/configuration.h"

namespace gradloom {

struct DeviceForecast {
  bool gpus = false;
  std::vector<std::pair<int, double>> step_seconds;  // by number of devices: 1, 2, 4 ... and the requested number

  // "predicted step: 1 device 0.05 ms, 2 devices 0.1 ms"; empty for one device.
  std::string Line() const;
  // A sentence if fewer devices than requested would be faster; otherwise empty.
  std::string Warning() const;
};

// Compiles the first training step for fewer devices than options.recipe has, with the same total number of threads, and simulates it, as
// well as `plan` for all devices. Empty for one device, and if compilation would take noticeably long: over a second.
DeviceForecast ForecastDevices(const Model& model, const CompileOptions& options, const Plan& plan, const CompileReport& report,
                               const Cluster& cluster);

// A line on what one device computes for the whole batch because the model relates samples (CompileReport::tail); "" if nothing.
std::string TailLine(const CompileReport& report, DeviceKind device);

// Adds the lines of a forecast for devices of this machine, or of devices.topology, to the notes.
void AddForecast(const Configuration& configuration, const Model& model, const CompileOptions& options, const Plan& plan,
                 const CompileReport& report, std::vector<std::string>& notes);

}  // namespace gradloom
