// The loss of a model, as nodes of its graph.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"

namespace gradloom {

// One term. Formulas and defaults are those of PyTorch's functions of the same name.
struct LossTerm {
  // cross_entropy, nll, mse, l1, smooth_l1, huber, bce, bce_with_logits, kl_div, or output: the mean of a
  // model output, which has no target.
  std::string type;
  std::string output;  // name of a graph output; empty: the first
  std::string target;  // name of the target, made an input of the graph; empty: "target"
  double weight = 1;
  std::string reduction = "mean";  // or sum; kl_div also knows batchmean

  // cross_entropy and nll: the axis of the classes; -1 is the last one, with all others as batch.
  int64_t class_axis = 1;
  std::optional<int64_t> ignore_index;  // PyTorch's default is -100
  double label_smoothing = 0;           // cross_entropy
  std::vector<double> class_weight;     // one per class; empty: none

  double beta = 1;                 // smooth_l1
  double delta = 1;                // huber
  std::vector<double> pos_weight;  // bce_with_logits: broadcast against the output; empty: none
};

// The names of the loss types.
std::vector<std::string> LossTypes();

// Appends the weighted sum of the terms and returns it, a scalar. A mean is a sum divided by an explicit
// denominator, so that parts of a batch add up. Targets become inputs of the graph: int64 classes for
// cross_entropy and nll, of the output's type otherwise; a target that several terms name is one input.
// `targets` gives shapes that are known of targets, without their type: one of as many elements as the loss
// needs is reshaped, any other is Error(kShape), never broadcast. Throws Error(kConfig) for an unknown type
// or output, Error(kShape, kType) for an output that a term cannot use.
ValueId AddLoss(GraphBuilder& builder, std::span<const LossTerm> terms, const std::map<std::string, Shape>& targets = {});

}  // namespace gradloom
