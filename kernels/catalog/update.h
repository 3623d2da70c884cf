// The operands and attributes that all optimizer operators share.
#pragma once

#include <string>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/scalar/optimizers.h"

namespace gradloom {

// Inputs of an update: the states follow. Outputs: the next parameter, then the next states in the same
// order (gradloom.LambDirection: the direction first; gradloom.LambApply has operands of its own).
enum UpdateInput : int {
  kUpdateParameter,
  kUpdateGradient,
  kUpdateLr,     // scalar of the parameter's dtype (float32 for 16-bit ones)
  kUpdateStep,   // int64[]: the number of this update, from 1
  kUpdateClip,   // scalar, optional: multiplies the gradient
  kUpdateApply,  // bool[], optional: where false, the outputs are the inputs
  kUpdateStates,
};

// gradloom.LambApply(parameter, direction, lr, sum of squares of the parameter, of the direction, apply).
enum LambApplyInput : int { kLambParameter, kLambDirection, kLambLr, kLambParameterSquares, kLambDirectionSquares, kLambApply };

// gradloom.MultiTensorUpdate: updates of several parameters by one optimizer, whose operator the attribute "update" names, with the same
// attributes. Inputs: the four that all share, then of each parameter: itself, its gradient, its states. Outputs: of each the next
// parameter, the next states.
enum MultiTensorInput : int { kMultiTensorLr, kMultiTensorStep, kMultiTensorClip, kMultiTensorApply, kMultiTensorParameters };
inline constexpr int kMostTensors = 32;

// How many parameters a MultiTensorUpdate has; -1 where its operands are not as many as they have to be.
int TensorsOf(const KernelCall& call);
// The update of one of them by itself.
KernelCall UpdateOf(const KernelCall& call, int tensor);
// Where the operands of that one are among the call's: inputs (-1: absent) and outputs.
std::vector<int> UpdateInputs(const KernelCall& call, int tensor);
std::vector<int> UpdateOutputs(const KernelCall& call, int tensor);

// Why an update cannot go element by element, or "": parameter, gradient, states and what becomes of them must have one type and layout.
// Padding stays zero, because every update of zeros by a zero gradient is zero; but Adamax adds epsilon to its norm.
std::string RejectsUnequalOperands(const KernelCall& call);

// The factor of the node's parameter group.
inline double LrScale(const Attributes& attributes) { return attributes.Float("lr_scale", 1); }

// The options of gradloom.Sgd, Adam, RmsProp, Adagrad, Adadelta, Adamax and LambDirection.
scalar::SgdOptions SgdOptionsOf(const Attributes& attributes);
scalar::AdamOptions AdamOptionsOf(const Attributes& attributes);
scalar::RmsPropOptions RmsPropOptionsOf(const Attributes& attributes);
scalar::AdagradOptions AdagradOptionsOf(const Attributes& attributes);
scalar::AdadeltaOptions AdadeltaOptionsOf(const Attributes& attributes);
scalar::AdamaxOptions AdamaxOptionsOf(const Attributes& attributes);

}  // namespace gradloom
