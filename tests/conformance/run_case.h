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
  int streams = 1;  // per device
  std::string devices = "cpu";
  std::string isa = "sm_90";  // of CUDA devices
  bool graph = true;          // CUDA devices capture steps as graphs
  bool autotune = false;      // CUDA devices measure the libraries' algorithms
  bool fixed_order = true;    // of sums, see Recipe
  bool copy_inputs = false;
  Precision precision = Precision::kFloat32;
  LossScale loss_scale;
  bool recompute = false;                    // as many activations as make the arena smaller
  int gather_to = -1;                        // the device that computes the loss and everything after it; -1: none
  bool shards = false;                       // the optimizer's state is shared out over the devices
  bool gradients = true;                     // those of the first step are fetched
  int stages = 1;                            // number of devices that together hold one replica of the model
  int pipeline = 1;                          // micro-batches that they compute at the same time
  uint64_t place_seed = 0;                   // seed of the random assignment of nodes to stages
  std::optional<uint64_t> chaos;             // seed of random delays before every instruction
  std::vector<std::string> disabled_passes;  // to find the pass that causes a deviation
};

// "fp32", "tf32", "bf16" or "fp16". Throws Error(kConfig).
Precision PrecisionNamed(const std::string& text);

// Applies the options for devices, their numbers, and precision. Throws Error(kConfig).
void SetDevices(const RunOptions& options, Recipe& recipe, SessionOptions& session);

// How the case's model is read: the names of detached values, and the first batch's extents of all open axes but the batch axis. Batches
// with other extents need a CompilingSource in the session.
ImportOptions ReadingOf(const TrainingCase& recorded, const Model& model);

// Compiles the case's model with its recipe, feeds its batches in order, and collects what Compare needs. Throws Error of any class.
TrainingRun RunCase(const TrainingCase& recorded, const RunOptions& options);

// The inputs and targets of a batch, borrowed from the case. Throws Error(kData) if an array is missing.
Feeds FeedsOfStep(const TrainingCase& recorded, int step);

}  // namespace gradloom
