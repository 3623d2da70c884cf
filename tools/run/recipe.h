// From the keys of a configuration to what the compiler is asked for.
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

// Fills what the configuration leaves open from the graph's outputs: a loss is guessed from the shape of the first
// one. `total_updates`: for schedules that end; 0: not known. `notes` gets what was guessed.
Recipe RecipeOf(const Configuration& configuration, const Model& model, const Graph& graph, int64_t total_updates,
                std::vector<std::string>& notes);

// Threads for all devices of a process: as many as OMP_NUM_THREADS says ("4", or "4,2" for nested ones), which launchers set; else one a
// core, shared by so many processes of this host.
int ThreadsOfProcess(int processes);

// The devices that the configuration names, as this machine has them, and what they are ("sm_90"; "any" for the CPU); with --target as
// they are named. `notes` gets a line where the CPU stands in. Throws Error(kConfig), Error(kDevice).
struct NamedDevices {
  DeviceSpec devices;
  std::string isa = "any";
  std::string free;  // a line for a process that is alone: GPUs that it leaves free; "": none
};
NamedDevices DevicesOf(const Configuration& configuration, std::vector<std::string>& notes);
// How many copies of the model these devices hold. Throws as DevicesOf, and Error(kConfig) where the compiler is to find that out.
int64_t CopiesOf(const Configuration& configuration);
ExecutorOptions ExecutorOptionsOf(const Configuration& configuration);

// `total_updates`: of the whole run, 0 where not known.
Schedule ScheduleOf(const Configuration& configuration, int64_t total_updates);
ImportOptions ImportOptionsOf(const Configuration& configuration);
PassControl PassControlOf(const Configuration& configuration);

// How the model's file is read. Throws Error(kConfig) for a limit that there is not.
LoadOptions LoadOptionsOf(const Configuration& configuration);

// A placement that the model's file describes (ONNX's multi-device annotations), as --place names it.
inline constexpr char kPlaceByFile[] = "file";

// With --verbose, on stderr: the value of each key that was given, and where it is from.
void SayGiven(const Configuration& configuration);

// The path of the model. Throws Error(kConfig) where none is given.
const std::string& ModelPathOf(const Configuration& configuration);

// "cross_entropy(logits, label, label_smoothing=0.1)*0.5" -> a term; the operands may be left out. A term that begins
// with an ONNX file, "my_loss.onnx(prediction=logits)*0.5", is loaded; `shapes` are extents of symbolic dimensions.
// Throws Error(kConfig) with a did-you-mean, and what Model::Load throws.
LossTerm ParseLoss(const std::string& text, const std::map<std::string, int64_t>& shapes = {});

// The ONNX files among the losses.
std::vector<std::string> LossFilesOf(const Configuration& configuration);

}  // namespace gradloom
