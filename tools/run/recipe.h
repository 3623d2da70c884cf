// Converts the keys of a configuration to the compiler's recipe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "compiler/passes/recipe.h"
#include "runtime/exec/executor.h"
#include "runtime/plan/device_spec.h"
#include "tools/config/configuration.h"

namespace gradloom {

// Fills in what the configuration leaves open from the graph's outputs: the loss is guessed from the shape of the first one.
// `total_updates`: for schedules that end; 0: unknown. Guesses are added to `notes`.
Recipe RecipeOf(const Configuration& configuration, const Model& model, const Graph& graph, int64_t total_updates,
                std::vector<std::string>& notes);

// The number of threads for all devices of a process: OMP_NUM_THREADS ("4", or "4,2" for nested levels), which launchers set; otherwise one
// per core, divided by the number of processes on this host.
int ThreadsOfProcess(int processes);

// The configured devices as they exist on this machine, and their architecture ("sm_90"; "any" for the CPU); with --target, as configured.
// A line is added to `notes` if the CPU is used instead. Throws Error(kConfig), Error(kDevice).
struct NamedDevices {
  DeviceSpec devices;
  std::string isa = "any";
  std::string free;  // a line for a single process on GPUs that it does not use; "": none
};
NamedDevices DevicesOf(const Configuration& configuration, std::vector<std::string>& notes);
// The number of copies of the model on these devices. Throws as DevicesOf, and Error(kConfig) if the compiler decides it.
int64_t CopiesOf(const Configuration& configuration);
ExecutorOptions ExecutorOptionsOf(const Configuration& configuration);

// `total_updates`: of the whole run; 0: unknown.
Schedule ScheduleOf(const Configuration& configuration, int64_t total_updates);
ImportOptions ImportOptionsOf(const Configuration& configuration);
PassControl PassControlOf(const Configuration& configuration);

// How to load the model file. Throws Error(kConfig) for an unknown limit.
LoadOptions LoadOptionsOf(const Configuration& configuration);

// The value of --place for the placement in the model file (ONNX's multi-device annotations).
inline constexpr char kPlaceByFile[] = "file";
// The value of --gather-to with which a model that relates samples is refused on several devices.
inline constexpr char kGatherNowhere[] = "none";
// Whether --gather-to names a device.
bool GathersByConfiguration(const Configuration& configuration);

// With --verbose, prints each key that was set, with its origin, on stderr.
void PrintSetKeys(const Configuration& configuration);

// The path of the model. Throws Error(kConfig) if none is given.
const std::string& ModelPathOf(const Configuration& configuration);

// Parses "cross_entropy(logits, label, label_smoothing=0.1)*0.5"; the operands are optional. A term that begins with an ONNX file,
// "my_loss.onnx(prediction=logits)*0.5", is loaded; `shapes` sets extents of symbolic dimensions. Throws Error(kConfig) with a suggestion,
// and what Model::Load throws.
LossTerm ParseLoss(const std::string& text, const std::map<std::string, int64_t>& shapes = {});

// The ONNX files among the losses.
std::vector<std::string> LossFilesOf(const Configuration& configuration);

}  // namespace gradloom
