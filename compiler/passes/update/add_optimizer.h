// The update of the parameters, as nodes of the graph.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/passes/loss/loss_scale.h"

namespace gradloom {

// Options of the parameters whose names match a pattern. A parameter has each option of the first group that matches it and states the
// option; without one, that of the optimizer.
struct ParameterGroup {
  std::string pattern;
  std::optional<double> lr_scale = {};  // factor of the learning rate
  std::optional<double> weight_decay = {};
};

// The fields are torch.optim's arguments, with its defaults.
struct OptimizerOptions {
  std::string type = "sgd";  // one of OptimizerTypes()
  double lr = 1e-3;
  double weight_decay = 0;               // L2 in the gradient; decoupled for adamw, lamb and lion
  double momentum = 0, dampening = 0;    // sgd, momentum, nesterov, rmsprop
  bool nesterov = false;                 // sgd, momentum
  double beta1 = 0.9;                    // adam, adamw, nadam, radam, adamax, lamb, lion
  double beta2 = -1;                     // the same; below 0: the type's default
  double momentum_decay = 4e-3;          // nadam
  double eps = -1;                       // below 0: the type's default
  bool amsgrad = false;                  // adam, adamw
  double alpha = 0.99;                   // rmsprop
  bool centered = false;                 // rmsprop
  double rho = 0.9;                      // adadelta
  double lr_decay = 0;                   // adagrad
  double initial_accumulator_value = 0;  // adagrad
  bool no_decay_1d = false;              // decay only tensors of rank 2 and more that are no StoredVectors
  std::vector<ParameterGroup> groups;
  double clip_norm = 0;   // bound on the global L2 norm of all gradients; 0: none
  double clip_value = 0;  // bound on the magnitude of each element of a gradient; 0: none, and not with clip_norm
  // Decay of the moving averages of the parameters, from 0 to below 1; none: there are no averages. With ema_warmup, it rises from 0 to
  // this.
  std::optional<double> ema;
  bool ema_warmup = false;
};

// The rates of the update of one parameter.
struct UpdateRates {
  double lr_scale = 1;  // factor of the learning rate
  double weight_decay = 0;
};

// Those of the parameter `name`. `vector`: whether it has a rank below 2 or is one of StoredVectors.
UpdateRates RatesOf(const OptimizerOptions& options, const std::string& name, bool vector);

// The names of the types.
std::vector<std::string> OptimizerTypes();

// Appends one update for each parameter (`gradients`: parameter -> gradient), in phase kUpdate: next values of the parameter and of its
// states, which are created here as "<parameter>/exp_avg" and so on. With clip_norm, gradients are scaled by min(1, clip_norm / (norm +
// 1e-6)), and the norm before clipping is returned; otherwise kNoValue. With clip_value, their elements are clamped. `scale`: the scale of
// the loss whose gradients these are. They are divided by it, and nothing is updated if one of them is not finite. `vectors`: parameters
// that count as tensors of rank 1. With ema, the next values of the moving averages follow, as states "<parameter>/average". `weight`
// (int64 []): if given, the gradients are sums of batches with that weight and are divided by it, or by 1 if it is 0. Throws Error(kConfig)
// for an unknown type, an option out of range, or a group without parameters.
ValueId AddOptimizer(GraphBuilder& builder, const OptimizerOptions& options, const std::map<ValueId, ValueId>& gradients,
                     const LossScale& scale = {}, const std::set<ValueId>& vectors = {}, ValueId weight = kNoValue);

}  // namespace gradloom
