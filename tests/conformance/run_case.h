// Trains a recorded case.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/onnx/import.h"
#include "runtime/session/session.h"
#include "tests/conformance/compare.h"
#include "tests/conformance/training_case.h"

namespace gradloom {

struct RunOptions {
  int threads = 1;
  int streams = 1;  // of a device
  std::string devices = "cpu";
  std::string isa = "sm_90";  // of CUDA devices
  bool graph = true;          // of CUDA devices: steps are captured
  bool autotune = false;      // of CUDA devices: the libraries' algorithms are measured
  bool copy_inputs = false;
  Precision precision = Precision::kFloat32;
  LossScale loss_scale;
  int gather_to = -1;                        // the device that has the loss and all that follows; -1: none
  int stages = 1;                            // that hold a copy of the model together
  uint64_t place_seed = 0;                   // which node is on which of them
  std::optional<uint64_t> chaos;             // seed of random delays before every instruction
  std::vector<std::string> disabled_passes;  // to find the one that a deviation comes from
};

// "fp32", "tf32", "bf16" or "fp16". Throws Error(kConfig).
Precision PrecisionNamed(const std::string& text);

// What the options say of devices, their numbers, and how they compute. Throws Error(kConfig).
void SetDevices(const RunOptions& options, Recipe& recipe, SessionOptions& session);

// How the case's model is read: what is detached by name, and of axes that the file leaves open the extents of the first batch, that of the
// batch excepted. For those of others a session needs a CompilingSource.
ImportOptions ReadingOf(const TrainingCase& recorded, const Model& model);

// Compiles the case's model with its recipe, feeds its batches in order, and gathers what Compare needs.
// Throws Error of any class.
TrainingRun RunCase(const TrainingCase& recorded, const RunOptions& options);

// Inputs and targets of a batch, borrowed from the case. Throws Error(kData) where an array is missing.
Feeds FeedsOfStep(const TrainingCase& recorded, int step);

}  // namespace gradloom
