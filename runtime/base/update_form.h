// The order of the operands of optimizer operators, for the types of the operators and the kernels of every device.
#pragma once

namespace gradloom {

// The inputs of an update; the states follow. Outputs: the next parameter, then the next states in the same order. Exceptions: the first
// output of gradloom.LambDirection is the direction; gradloom.LambApply has its own operands.
//
// An update of a parameter with the attribute `copy_type` (a DType of 16 bits) has one more output, the last: the next parameter, rounded
// to this type as by Cast. It is the parameter's 16-bit copy (StateKind::kWeightCopy).
enum UpdateInput : int {
  kUpdateParameter,
  kUpdateGradient,
  kUpdateLr,     // scalar of the parameter's dtype (float32 for 16-bit ones)
  kUpdateStep,   // int64[]: the number of this update, from 1
  kUpdateClip,   // scalar, optional: factor of the gradient
  kUpdateApply,  // bool[], optional: if false, the outputs are the inputs
  kUpdateStates,
};
inline constexpr int kMaxUpdateStates = 3;

// gradloom.LambApply(parameter, direction, lr, sum of squares of the parameter, of the direction, apply).
enum LambApplyInput : int { kLambParameter, kLambDirection, kLambLr, kLambParameterSquares, kLambDirectionSquares, kLambApply };

// gradloom.MultiTensorUpdate: updates of several parameters by one optimizer with the same attributes; the attribute `update` names the
// optimizer's operator, `tensors` is the number of parameters. Inputs: four shared ones, then for each parameter the parameter, its
// gradient and its states. Outputs: for each parameter, its next value and the next states; then, with `copy_type`, the copy of each.
enum MultiTensorInput : int { kMultiTensorLr, kMultiTensorStep, kMultiTensorClip, kMultiTensorApply, kMultiTensorParameters };
inline constexpr int kMaxTensors = 32;

}  // namespace gradloom
