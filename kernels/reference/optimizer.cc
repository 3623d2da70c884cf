// Optimizers: one pass over the elements, each updated by kernels/scalar/optimizers.h. Every operand may share memory with its next value.
#include <array>
#include <cstring>
#include <vector>

#include "kernels/catalog/operands.h"
#include "kernels/catalog/update.h"
#include "kernels/reference/families.h"
#include "runtime/base/dispatch.h"

namespace gradloom {
namespace {

double ScalarInput(const KernelCall& call, const void* const* inputs, size_t i) {
  return ElementAsDouble({call.inputs[i].dtype, call.inputs[i].shape, inputs[i]}, 0);
}

bool Applies(const KernelCall& call, const void* const* inputs, size_t i) {
  return !HasInput(call, i) || *static_cast<const bool*>(inputs[i]);
}

double LearningRate(const KernelCall& call, const void* const* inputs, size_t i) {
  return ScalarInput(call, inputs, i) * LrScale(call.attributes);
}

void CopyUnchanged(const KernelCall& call, size_t input, const void* const* inputs, void* const* outputs, size_t output) {
  if (inputs[input] != outputs[output]) std::memcpy(outputs[output], inputs[input], static_cast<size_t>(call.inputs[input].bytes()));
}

// f(step, gradient, parameter, states) updates one element in place; `states` is an array of N states.
template <size_t N, typename T, typename Options, typename F>
void UpdateAll(const KernelCall& call, const void* const* inputs, void* const* outputs, const Options& options, F f) {
  const double lr = LearningRate(call, inputs, kUpdateLr);
  const auto step = scalar::MakeStep<T>(options, lr, *static_cast<const int64_t*>(inputs[kUpdateStep]));
  const T clip = HasInput(call, kUpdateClip) ? static_cast<T>(ScalarInput(call, inputs, kUpdateClip)) : T(1);
  const T* parameter = static_cast<const T*>(inputs[kUpdateParameter]);
  const OperandType& given = call.inputs[kUpdateGradient];
  Tensor widened;  // a 16-bit gradient, widened
  if (given.dtype != DTypeOf<T>::value) widened = Converted({given.dtype, given.shape, inputs[kUpdateGradient]}, DTypeOf<T>::value);
  const T* gradient = widened.defined() ? widened.as<T>().data() : static_cast<const T*>(inputs[kUpdateGradient]);
  T* next = static_cast<T*>(outputs[0]);
  std::array<const T*, N> states;
  std::array<T*, N> next_states;
  for (size_t k = 0; k < N; ++k) {
    states[k] = static_cast<const T*>(inputs[kUpdateStates + k]);
    next_states[k] = static_cast<T*>(outputs[1 + k]);
  }
  const int64_t n = call.inputs[kUpdateParameter].shape.elements();
  for (int64_t i = 0; i < n; ++i) {
    T p = parameter[i];
    std::array<T, N> s;
    for (size_t k = 0; k < N; ++k) s[k] = states[k][i];
    f(step, gradient[i] * clip, p, s);
    next[i] = p;
    for (size_t k = 0; k < N; ++k) next_states[k][i] = s[k];
  }
}

// Calls f(type) for the parameter's dtype, or copies all operands to the outputs if the update is not applied.
template <typename F>
void UpdateOrCopy(const KernelCall& call, const void* const* inputs, void* const* outputs, F f) {
  if (Applies(call, inputs, kUpdateApply)) {
    WithFloat(call.inputs[kUpdateParameter].dtype, f);
    return;
  }
  CopyUnchanged(call, kUpdateParameter, inputs, outputs, 0);
  for (size_t k = 1; k <= StatesOf(call); ++k) CopyUnchanged(call, kUpdateStates + k - 1, inputs, outputs, k);
}

void Sgd(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const scalar::SgdOptions options = SgdOptionsOf(call.attributes);
  UpdateOrCopy(call, inputs, outputs, [&]<typename T>(std::type_identity<T>) {
    if (StatesOf(call) == 0) {
      UpdateAll<0, T>(call, inputs, outputs, options, [](const auto& step, T g, T& p, auto&) { scalar::SgdElement(step, g, p); });
    } else {
      UpdateAll<1, T>(call, inputs, outputs, options,
                      [](const auto& step, T g, T& p, auto& s) { scalar::MomentumElement(step, g, p, s[0]); });
    }
  });
}

void Adam(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const scalar::AdamOptions options = AdamOptionsOf(call.attributes);
  UpdateOrCopy(call, inputs, outputs, [&]<typename T>(std::type_identity<T>) {
    if (StatesOf(call) == 2) {
      UpdateAll<2, T>(call, inputs, outputs, options,
                      [](const auto& step, T g, T& p, auto& s) { scalar::AdamElement(step, g, p, s[0], s[1]); });
    } else {
      UpdateAll<3, T>(call, inputs, outputs, options,
                      [](const auto& step, T g, T& p, auto& s) { scalar::AmsgradElement(step, g, p, s[0], s[1], s[2]); });
    }
  });
}

// An optimizer with N states whose options do not decide which of them it has.
template <size_t N, typename Options, typename F>
void UpdateWith(const KernelCall& call, const void* const* inputs, void* const* outputs, const Options& options, F f) {
  UpdateOrCopy(call, inputs, outputs, [&]<typename T>(std::type_identity<T>) { UpdateAll<N, T>(call, inputs, outputs, options, f); });
}

void NAdam(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  UpdateWith<2>(call, inputs, outputs, NAdamOptionsOf(call.attributes),
                [](const auto& step, auto g, auto& p, auto& s) { scalar::NAdamElement(step, g, p, s[0], s[1]); });
}

void RAdam(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  UpdateWith<2>(call, inputs, outputs, RAdamOptionsOf(call.attributes),
                [](const auto& step, auto g, auto& p, auto& s) { scalar::RAdamElement(step, g, p, s[0], s[1]); });
}

void Lion(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  UpdateWith<1>(call, inputs, outputs, LionOptionsOf(call.attributes),
                [](const auto& step, auto g, auto& p, auto& s) { scalar::LionElement(step, g, p, s[0]); });
}

void RmsProp(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const scalar::RmsPropOptions options = RmsPropOptionsOf(call.attributes);
  UpdateOrCopy(call, inputs, outputs, [&]<typename T>(std::type_identity<T>) {
    // The states are the square average, then the momentum buffer, then the average, as far as they exist.
    const size_t n = StatesOf(call), average = n - 1;
    if (n == 1) {
      UpdateAll<1, T>(call, inputs, outputs, options, [](const auto& step, T g, T& p, auto& s) {
        T none = T(0);
        scalar::RmsPropElement(step, g, p, s[0], none, none);
      });
    } else if (n == 2) {
      UpdateAll<2, T>(call, inputs, outputs, options,
                      [=](const auto& step, T g, T& p, auto& s) { scalar::RmsPropElement(step, g, p, s[0], s[1], s[average]); });
    } else {
      UpdateAll<3, T>(call, inputs, outputs, options,
                      [=](const auto& step, T g, T& p, auto& s) { scalar::RmsPropElement(step, g, p, s[0], s[1], s[average]); });
    }
  });
}

void Adagrad(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  UpdateWith<1>(call, inputs, outputs, AdagradOptionsOf(call.attributes),
                [](const auto& step, auto g, auto& p, auto& s) { scalar::AdagradElement(step, g, p, s[0]); });
}

void Adadelta(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  UpdateWith<2>(call, inputs, outputs, AdadeltaOptionsOf(call.attributes),
                [](const auto& step, auto g, auto& p, auto& s) { scalar::AdadeltaElement(step, g, p, s[0], s[1]); });
}

void Adamax(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  UpdateWith<2>(call, inputs, outputs, AdamaxOptionsOf(call.attributes),
                [](const auto& step, auto g, auto& p, auto& s) { scalar::AdamaxElement(step, g, p, s[0], s[1]); });
}

void MovingAverage(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  UpdateWith<0>(call, inputs, outputs, MovingAverageOptionsOf(call.attributes),
                [](const auto& step, auto g, auto& p, auto&) { scalar::MovingAverageElement(step, g, p); });
}

// The direction replaces the parameter in UpdateAll. If the update is not applied, LambApply ignores the direction, so any finite value
// will do.
void LambDirection(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  UpdateWith<2>(call, inputs, outputs, AdamOptionsOf(call.attributes),
                [](const auto& step, auto g, auto& p, auto& s) { p = scalar::LambElement(step, g, p, s[0], s[1]); });
}

void LambApply(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  if (!Applies(call, inputs, kLambApply)) return CopyUnchanged(call, kLambParameter, inputs, outputs, 0);
  WithFloat(call.inputs[kLambParameter].dtype, [&]<typename T>(std::type_identity<T>) {
    const T ratio = scalar::TrustRatio(static_cast<T>(ScalarInput(call, inputs, kLambParameterSquares)),
                                       static_cast<T>(ScalarInput(call, inputs, kLambDirectionSquares)));
    const T rate = static_cast<T>(LearningRate(call, inputs, kLambLr)) * ratio;
    const T* parameter = static_cast<const T*>(inputs[kLambParameter]);
    const T* direction = static_cast<const T*>(inputs[kLambDirection]);
    T* next = static_cast<T*>(outputs[0]);
    const int64_t n = call.inputs[kLambParameter].shape.elements();
    for (int64_t i = 0; i < n; ++i) next[i] = parameter[i] - rate * direction[i];
  });
}

void MultiTensorUpdate(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  for (int tensor = 0; tensor < TensorsOf(call); ++tensor) {
    const KernelCall update = UpdateOf(call, tensor);
    std::vector<const void*> in;
    std::vector<void*> out;
    for (int input : UpdateInputs(call, tensor)) in.push_back(inputs[input]);
    for (int output : UpdateOutputs(call, tensor)) out.push_back(outputs[output]);
    FindReference(update.domain, update.op)->run(update, in.data(), out.data());
  }
}

// Runs an update and then writes the parameter's copy, if it has one.
template <auto kUpdate>
void WithCopy(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  kUpdate(call, inputs, outputs);
  const DType type = CopyTypeOf(call.attributes);
  if (type == DType::kUndefined) return;
  const Tensor copy = Converted({call.outputs[0].dtype, call.outputs[0].shape, outputs[0]}, type);
  if (copy.bytes() > 0) std::memcpy(outputs[call.outputs.size() - 1], copy.data(), static_cast<size_t>(copy.bytes()));
}

constexpr ReferenceKernel kKernels[] = {
    {"Sgd", "gradloom", WithCopy<Sgd>},
    {"Adam", "gradloom", WithCopy<Adam>},
    {"NAdam", "gradloom", WithCopy<NAdam>},
    {"RAdam", "gradloom", WithCopy<RAdam>},
    {"Lion", "gradloom", WithCopy<Lion>},
    {"RmsProp", "gradloom", WithCopy<RmsProp>},
    {"Adagrad", "gradloom", WithCopy<Adagrad>},
    {"Adadelta", "gradloom", WithCopy<Adadelta>},
    {"Adamax", "gradloom", WithCopy<Adamax>},
    {"MovingAverage", "gradloom", WithCopy<MovingAverage>},
    {"LambDirection", "gradloom", LambDirection},
    {"LambApply", "gradloom", WithCopy<LambApply>},
    {"MultiTensorUpdate", "gradloom", MultiTensorUpdate},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceOptimizer() { return kKernels; }

}  // namespace gradloom
