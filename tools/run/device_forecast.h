// What more devices bring, before anything runs.
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
  std::vector<std::pair<int, double>> step_seconds;  // by number of devices: 1, 2, 4 ... and the one that was asked for

  // "predicted step: 1 device 0.05 ms, 2 devices 0.1 ms"; empty where there is one device.
  std::string Line() const;
  // A sentence where fewer devices would be faster than those asked for; else empty.
  std::string Warning() const;
};

// Compiles the first training step for fewer devices than options.recipe has, with as many threads in all, and simulates it, as
// `plan` for all of them. Empty for one device, and where compiling takes so long that it would be missed: over a second.
DeviceForecast ForecastDevices(const Model& model, const CompileOptions& options, const Plan& plan, const CompileReport& report,
                               const Cluster& cluster);

// Adds the lines of a forecast for devices of this machine, or of devices.topology, to what the screen says.
void AddForecast(const Configuration& configuration, const Model& model, const CompileOptions& options, const Plan& plan,
                 const CompileReport& report, std::vector<std::string>& notes);

}  // namespace gradloom
