// The weights that a new run begins with, instead of those of the model's file.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "compiler/onnx/export/export.h"
#include "runtime/session/session.h"
#include "tools/run/train/stored_tensors.h"

namespace gradloom {

// The weights that model.freeze keeps as they are in this run, by name; none if `path` is not the folder of a run. Numbers in the code have
// no extents, and are left out.
std::map<std::string, Tensor> FrozenWeightsOfRun(const std::string& path);

// The tensors of a safetensors file, of an index of several, or of a checkpoint; of a run those of its newest state, and its frozen
// weights.
class InitialWeights {
 public:
  // `path`: any of these. Throws like OpenWeights and StoredTensors, and Error(kCheckpoint) for a model.
  explicit InitialWeights(const std::string& path);

  // Of the file, or the folder of a checkpoint.
  const std::string& path() const { return stored_.path(); }
  const StoredTensors& stored() const { return stored_; }
  // Lines for the screen about how they were found.
  const std::vector<std::string>& notes() const { return notes_; }
  // Borrow the weights.
  TrainedValues values() const;
  Tensor Read(const std::string& name) const;
  const std::map<std::string, TensorView>& types() const { return types_; }

 private:
  std::vector<std::string> notes_;
  StoredTensors stored_;
  std::map<std::string, Tensor> frozen_;     // of a run
  std::map<std::string, TensorView> types_;  // of all, without data
};

// Where the frozen weights of a model come from. They are constants of its plan, so they must be known before it is compiled.
struct FrozenSource {
  std::string path;  // for messages
  TrainedValues values;
  std::vector<std::string> except;  // patterns of names that the model keeps
};

// The model with those of its weights that training does not change (frozen ones, statistics of --mode graph) which the source has; `taken`
// gets their names. Throws Error(kCheckpoint) for one of another shape, or not in floating point.
Model WithFrozenWeights(const Model& model, const CompileOptions& options, const FrozenSource& source, std::set<std::string>& taken);

// Replaces parameters and running statistics of the session with those of `weights` (or their moving averages), except those whose names
// match a pattern of `except`. Optimizer state, accumulated gradients and loss scale are ignored. `taken`: what WithFrozenWeights has used
// of them. Notes list the names that the model lacks, the parameters that the weights lack, frozen weights that the plan fixes, and values
// that are not finite. Throws Error(kCheckpoint) if there are none of the model's weights, or one of another shape or type; Error(kConfig)
// for a pattern that matches no tensor.
void LoadWeights(Session& session, const InitialWeights& weights, const std::vector<std::string>& except,
                 const std::set<std::string>& taken, std::vector<std::string>& notes);

}  // namespace gradloom
