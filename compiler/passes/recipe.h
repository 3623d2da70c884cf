// The recipe: how a model is trained, and on which devices.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/passes/gradient/surrogates.h"
#include "compiler/passes/loss/add_loss.h"
#include "compiler/passes/loss/loss_scale.h"
#include "compiler/passes/update/add_optimizer.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// kGraph trains the file as it is written; kTrain restores training behaviour: batch statistics and Dropout.
enum class GraphMode : uint8_t { kGraph, kTrain };

// The precision of products: float32, float32 with operands rounded to TensorFloat-32, or mixed precision (lower_precision.h).
enum class Precision : uint8_t { kFloat32, kTf32, kBfloat16, kFloat16 };

// Which activations are recomputed in the backward pass: as many as the memory limit requires, none, or as many as make the arena smaller.
enum class RecomputeMode : uint8_t { kAuto, kNone, kFull };

// The stage of nodes whose names, or those of weights that they read, match the pattern ('*' and '?').
struct PlaceRule {
  std::string pattern;
  int stage = 0;  // index of the device among those that hold one copy of the model
};

struct Recipe {
  GraphMode mode = GraphMode::kTrain;
  std::vector<LossTerm> losses;  // summed
  OptimizerOptions optimizer;
  Schedule schedule;
  int64_t accumulate = 1;           // batches per update
  bool accumulate_samples = false;  // the samples of these batches have the same weight, otherwise the batches
  Precision precision = Precision::kFloat32;
  LossScale loss_scale;

  // Patterns over initializer names ('*' and '?'). `only` replaces the analysis: exactly these are trained.
  std::vector<std::string> trainable;
  std::vector<std::string> freeze;
  std::optional<std::vector<std::string>> only;
  std::vector<Surrogate> surrogates;  // gradients of step functions
  bool tie = true;                    // a matrix that the file has twice, once transposed, is trained as one; not with `only`

  bool fetch_gradients = false;  // each step also returns "grad/<parameter>", before clipping
  bool fetch_outputs = false;    // training entries also return the model's outputs
  // Inputs and targets of which training entries also return the gradient of the batch's loss: "grad/<input>".
  std::set<std::string> input_gradients;

  DeviceKind device = DeviceKind::kCpu;
  std::string isa = "any";            // of the devices: "sm_90"
  int devices = 1;                    // copies of the model on these devices share each batch
  std::vector<PlaceRule> place;       // parts of the model on devices of their own; the first rule that matches
  std::map<std::string, int> placed;  // the file's own annotations, instead of rules: stages by names of nodes
  int placed_stages = 0;              // number of stages in `placed`; 0: none
  // The device that gathers the samples for the loss and for the nodes that `place` puts there, or for the nodes of `tail`; -1: none, or
  // with `gather_related` the first one for a model that relates samples.
  int gather_to = -1;
  bool gather_related = true;  // gather the samples if they are related and the rest of the recipe places nothing
  std::set<std::string> tail;  // origins of the nodes that relate samples: these and all that follow from them run on that device
  bool place_auto = false;     // cut the model into as many parts as the memory limit requires, by the cost model
  int pipeline = 1;            // micro-batches of a copy's batch that its devices compute at the same time, if parts are placed
  int64_t bucket_bytes = 0;    // bytes of gradients that devices sum in one all-reduce; 0: the cost model decides
  bool copy_inputs = false;    // copy all inputs ahead of their step; otherwise only those that a device cannot read in place
  // Each device that shares the batch keeps the optimizer's states of some parameters only, updates these, and broadcasts them.
  bool shard_optimizer = false;
  bool sync_bn = false;      // batch statistics of the whole batch, not of each device's samples
  bool fixed_order = true;   // GPUs sum in the same order in every run; otherwise some gradients in any order (relax_order)
  int threads = 1;           // threads of a device, which its streams share
  int64_t memory_limit = 0;  // bytes of a device that a plan may need; activations are recomputed to fit; 0: no limit
  RecomputeMode recompute = RecomputeMode::kAuto;
  bool keep_settled = true;  // predictions keep what they compute from weights alone for the next run, as far as the limit allows
  int streams = 1;           // streams of a device; 0: the cost model decides

  // Puts the whole model on one device.
  void PlaceTogether() {
    place.clear();
    placed.clear();
    placed_stages = 0;
    pipeline = 1;
  }

  // Whether nodes that relate samples may be put on one device that gathers the samples: if nothing else is placed.
  bool MayGatherRelated() const {
    return gather_related && devices > 1 && place.empty() && placed_stages == 0 && !place_auto && !UsesFileAlgorithm() &&
           (gather_to < 0 || !tail.empty());
  }

  // Whether the optimizer's states are shared out over several devices.
  bool ShardsOptimizer() const { return shard_optimizer && devices > 1; }

  // Whether loss, gradients and updates are those of the file's own algorithm, and the index of its training_info.
  bool UsesFileAlgorithm() const { return losses.size() == 1 && losses[0].type == "algorithm"; }
  int training_info() const { return UsesFileAlgorithm() ? losses[0].training_info : -1; }
};

}  // namespace gradloom
