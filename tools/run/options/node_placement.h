// Where a configuration puts the parts of a model, and where it gathers samples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/onnx/import.h"
#include "compiler/passes/recipe.h"
#include "runtime/plan/device_spec.h"
#include "tools/config/configuration.h"

namespace gradloom {

// The value of --place for the placement in the model file (ONNX's multi-device annotations).
inline constexpr char kPlaceByFile[] = "file";
// The value of --gather-to with which a model that relates samples is refused on several devices.
inline constexpr char kGatherNowhere[] = "none";
// Whether --gather-to names a device.
bool GathersByConfiguration(const Configuration& configuration);

// Sets what the recipe says of placement: by patterns, by the model file, or by the compiler; the number of devices if none are configured;
// and the device that gathers samples. `devices` are those of the configuration. Notes say how the file's placement is used. Throws
// Error(kConfig).
void PlaceNodes(const Configuration& configuration, const Model& model, const DeviceSpec& devices, Recipe& recipe,
                std::vector<std::string>& notes);

// Resets a placement and a gathering device that come from a file or a run, if a stronger source names devices that they do not fit: a
// model that was trained in two parts is used with --devices cpu.
void DropUnfitPlacement(Configuration& configuration);

// The number of copies of the model on the configured devices. Throws as DevicesOf, and Error(kConfig) if the compiler decides it.
int64_t CopiesOf(const Configuration& configuration);

}  // namespace gradloom
