// The loss of a model, as nodes of its graph.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/passes/loss/loss_graph.h"
#include "compiler/passes/loss/loss_operands.h"

namespace gradloom {

// One term. Formulas and defaults are those of PyTorch's functions of the same name; sigmoid_focal's are torchvision's, log_cosh's and
// hinge's Keras's, but targets of hinge are -1 and 1.
struct LossTerm {
  // cross_entropy, nll, mse, l1, smooth_l1, huber, log_cosh, quantile, poisson_nll, hinge, soft_margin, bce, bce_with_logits,
  // sigmoid_focal, kl_div; output: the mean of a model output, without a target; graph: a graph of its own, for which only `weight` of the
  // other options applies; or algorithm: the file's own (training_info), which has loss, gradients and updates, and must be the only term.
  std::string type;
  std::string output;  // name of a graph output; empty: the first
  std::string target;  // name of the target, made an input of the graph; empty: "target"
  double weight = 1;
  std::string reduction = "mean";  // or sum; for kl_div also batchmean, which its mean is too (PyTorch's divides by the elements)

  // cross_entropy and nll: the axis of the classes; -1 is the last one, with all others as batch.
  int64_t class_axis = 1;
  std::optional<int64_t> ignore_index;  // none: kIgnoredClass
  double label_smoothing = 0;           // cross_entropy: from 0 to 1
  bool probabilities = false;           // cross_entropy: the target has a probability for each class, in the output's shape
  std::vector<double> class_weight;     // one per class; empty: none

  double beta = 1;                 // smooth_l1: at least 0
  double delta = 1;                // huber: above 0
  double quantile = 0.5;           // quantile: from 0 to 1
  bool log_input = true;           // poisson_nll: the output is the logarithm of the rate
  double alpha = 0.25, gamma = 2;  // sigmoid_focal: weight of positives, below 0: none; exponent, at least 0
  std::vector<double> pos_weight;  // bce_with_logits: one, or one for each element of the output's last axis; empty: none

  int training_info = 0;  // algorithm: index of the file's training_info

  std::shared_ptr<const LossGraph> graph;       // graph: the graph
  std::map<std::string, std::string> bindings;  // graph: its inputs that are bound to a value of another name

  // `target` with its default.
  std::string TargetName() const;
  // "mse(logits, y)*0.5": for messages, and to compare recipes.
  std::string ToString() const;
};

// The names of the loss types, except graph.
std::vector<std::string> LossTypes();

// The origin of the nodes that sum several terms.
inline constexpr char kLossSum[] = "losses";

// A loss in a graph.
struct AddedLoss {
  ValueId sum = kNoValue;      // a scalar
  std::vector<ValueId> terms;  // if there are several: the scalars whose sum it is, each times its weight
};

// Appends the weighted sum of the terms. A mean is a sum divided by an explicit denominator, so parts of a batch
// add up. Targets become inputs of the graph: int64 classes for cross_entropy and nll, otherwise of the output's type and shape. A target
// that several terms name is one input. Throws Error(kConfig) for an unknown type or output, an option out of its range, Error(kShape,
// kType) for an output that a term cannot use, and for a target that two terms need in different forms (LossOperands::Target). `batch`: of
// the model, for graphs (AddLossGraph).
AddedLoss AddLoss(GraphBuilder& builder, std::span<const LossTerm> terms, int64_t batch, LossOperands& operands);

// The names under which several terms are fetched: "loss/NAME", all different; none for a single term. NAME is that of the term's output
// or, if terms share one, its type or its target, whichever differ; for a graph, that of its file. `outputs`: the names of the model's
// outputs.
std::vector<std::string> LossTermFetches(std::span<const LossTerm> terms, std::vector<std::string> outputs);

}  // namespace gradloom
