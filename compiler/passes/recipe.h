// What to do with a model: how it is trained, for which batches, on what.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/passes/add_loss.h"
#include "compiler/passes/add_optimizer.h"
#include "compiler/passes/loss_scale.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// kGraph trains the file as it is written; kTrain restores training: batch statistics, Dropout.
enum class GraphMode : uint8_t { kGraph, kTrain };

// What products compute in: float32, float32 whose operands are rounded to TensorFloat-32, or mixed precision (lower_precision.h).
enum class Precision : uint8_t { kFloat32, kTf32, kBfloat16, kFloat16 };

// Which activations are made again in the backward pass: as many as the memory limit asks for, none, or as many as make the arena smaller.
enum class RecomputeMode : uint8_t { kAuto, kNone, kFull };

// Where nodes go whose names, or those of weights that they read, fit the pattern ('*' and '?').
struct PlaceRule {
  std::string pattern;
  int stage = 0;  // the device, of those that hold one copy of the model
};

struct Recipe {
  GraphMode mode = GraphMode::kTrain;
  std::vector<LossTerm> losses;  // summed
  OptimizerOptions optimizer;
  Schedule schedule;
  int64_t accumulate = 1;  // batches per update
  Precision precision = Precision::kFloat32;
  LossScale loss_scale;

  // Patterns over initializer names ('*' and '?'). `only` replaces the analysis: exactly these are trained.
  std::vector<std::string> trainable;
  std::vector<std::string> freeze;
  std::optional<std::vector<std::string>> only;

  bool fetch_gradients = false;  // each step also gives "grad/<parameter>", before clipping
  bool fetch_outputs = false;    // training entries also give the model's outputs

  DeviceKind device = DeviceKind::kCpu;
  std::string isa = "any";            // of the devices: "sm_90"
  int devices = 1;                    // copies of the model on them share each batch
  std::vector<PlaceRule> place;       // parts of the model on devices of their own; the first rule that fits
  std::map<std::string, int> placed;  // the file's own annotations, in place of rules: stages by names of nodes
  int placed_stages = 0;              // of them; 0: there are none
  int gather_to = -1;                 // the device that gathers the samples for the loss and the nodes that `place` puts there; -1: none
  bool place_auto = false;            // as many parts as the memory limit asks for and the cost model likes
  int64_t bucket_bytes = 0;           // of gradients that devices sum together; 0: as the cost model says
  bool copy_inputs = false;           // all of them, ahead of their step; else those alone that a device cannot read where they are
  bool sync_bn = false;               // batch statistics are of the whole batch, not of each device's samples
  int threads = 1;                    // of a device: its streams share them
  int64_t memory_limit = 0;           // bytes of a device that a plan may need; to fit, activations are made again; 0: any
  RecomputeMode recompute = RecomputeMode::kAuto;
  int streams = 1;  // of a device; 0: as many as the cost model says

  // The whole model on one device.
  void PlaceTogether() {
    place.clear();
    placed.clear();
    placed_stages = 0;
  }

  // Whether loss, gradients and updates are those of the file's own algorithm, and which of its training_info that is.
  bool TrainsByFile() const { return losses.size() == 1 && losses[0].type == "algorithm"; }
  int training_info() const { return TrainsByFile() ? losses[0].training_info : -1; }
};

}  // namespace gradloom
