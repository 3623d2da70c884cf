// The optimizers of ai.onnx.preview.training: a kernel with one thread computes the coefficients of the step, a second one updates all
// elements.
#include <cmath>
#include <vector>

#include "kernels/cuda/float_operand.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operands.cuh"
#include "kernels/cuda/rows/scratch.h"
#include "kernels/reference/operands.h"

namespace gradloom::cuda {
namespace {

// The coefficients of a step. Computed in double, as in the reference.
struct Coefficients {
  double rate, first, second;
};

struct Momentum {
  static constexpr int kStates = 1;
  double alpha, beta;
  bool nesterov;

  GRADLOOM_DEVICE Coefficients At(double rate, int64_t step) const { return {rate, step > 0 ? beta : 1.0, 0}; }
  // In the first step, the gradient is not scaled by beta.
  GRADLOOM_DEVICE void Update(const Coefficients& c, double g, double& x, double* state) const {
    state[0] = alpha * state[0] + c.first * g;
    x -= c.rate * (nesterov ? g + alpha * state[0] : state[0]);
  }
};

struct Adagrad {
  static constexpr int kStates = 1;
  double decay, epsilon;

  GRADLOOM_DEVICE Coefficients At(double rate, int64_t step) const { return {rate / (1 + static_cast<double>(step) * decay), 0, 0}; }
  GRADLOOM_DEVICE void Update(const Coefficients& c, double g, double& x, double* state) const {
    state[0] += g * g;
    x -= c.rate * g / (::sqrt(state[0]) + epsilon);
  }
};

struct Adam {
  static constexpr int kStates = 2;
  double alpha, beta, epsilon, after;

  GRADLOOM_DEVICE Coefficients At(double rate, int64_t step) const {
    const auto t = static_cast<double>(step);
    return {step > 0 ? rate * ::sqrt(1 - ::pow(beta, t)) / (1 - ::pow(alpha, t)) : rate, 0, 0};
  }
  GRADLOOM_DEVICE void Update(const Coefficients& c, double g, double& x, double* state) const {
    state[0] = alpha * state[0] + (1 - alpha) * g;
    state[1] = beta * state[1] + (1 - beta) * g * g;
    x = (1 - after) * (x - c.rate * state[0] / (::sqrt(state[1]) + epsilon));
  }
};

template <typename Rule>
void Prepare(const Rule& rule, FloatOperand rate, const int64_t* step, Coefficients* to, cudaStream_t stream) {
  static_assert(sizeof(Coefficients) <= cuda_rows::kUpdateBytes);
  ForEachElement(
      1, stream, GRADLOOM_ON_DEVICE(int64_t) { *to = rule.At(rate[0], *step); });
}

template <typename Rule, typename T>
struct Tensors {
  const T *x, *g, *states[Rule::kStates];
  T *next, *next_states[Rule::kStates];  // null if not wanted
};

template <typename Rule, typename T>
void Apply(const Rule& rule, int64_t n, double norm, const Coefficients* c, const Tensors<Rule, T>& t, cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        double x = static_cast<double>(t.x[i]), states[Rule::kStates];
        for (int s = 0; s < Rule::kStates; ++s) states[s] = static_cast<double>(t.states[s][i]);
        rule.Update(*c, norm * x + static_cast<double>(t.g[i]), x, states);
        if (t.next != nullptr) t.next[i] = static_cast<T>(x);
        for (int s = 0; s < Rule::kStates; ++s) {
          if (t.next_states[s] != nullptr) t.next_states[s][i] = static_cast<T>(states[s]);
        }
      });
}

template <typename Rule>
std::unique_ptr<Kernel> MakeTrainingUpdate(const KernelCall& call, const Rule& rule) {
  const size_t count = (call.inputs.size() - 2) / (2 + Rule::kStates);
  const double norm = call.attributes.Float("norm_coefficient", 0);
  const DType rate = call.inputs[0].dtype;
  const OperandCounts operands(call);
  std::vector<int64_t> elements;
  for (size_t k = 0; k < count; ++k) elements.push_back(call.inputs[2 + k].shape.elements());
  return WithFloat(call.inputs[2].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) {
      auto* const prepared = static_cast<Coefficients*>(l.scratch);
      Prepare(rule, {l.inputs[0], rate}, l.In<int64_t>(1), prepared, l.stream);
      for (size_t k = 0; k < count; ++k) {
        Tensors<Rule, T> t{l.In<T>(2 + k), l.In<T>(2 + count + k), {}, operands.Out<T>(l, k), {}};
        for (size_t s = 0; s < Rule::kStates; ++s) {
          t.states[s] = l.In<T>(2 + (2 + s) * count + k);
          t.next_states[s] = operands.Out<T>(l, (1 + s) * count + k);
        }
        Apply(rule, elements[k], norm, prepared, t, l.stream);
      }
    });
  });
}

std::unique_ptr<Kernel> MakeMomentum(const KernelCall& call, const KernelSite&) {
  const Attributes& a = call.attributes;
  return MakeTrainingUpdate(call, Momentum{a.Float("alpha", 0), a.Float("beta", 0), a.String("mode", "standard") == "nesterov"});
}

std::unique_ptr<Kernel> MakeAdagrad(const KernelCall& call, const KernelSite&) {
  return MakeTrainingUpdate(call, Adagrad{call.attributes.Float("decay_factor", 0), call.attributes.Float("epsilon", 1e-6)});
}

std::unique_ptr<Kernel> MakeAdam(const KernelCall& call, const KernelSite&) {
  const Attributes& a = call.attributes;
  return MakeTrainingUpdate(
      call, Adam{a.Float("alpha", 0.9), a.Float("beta", 0.999), a.Float("epsilon", 1e-6), a.Float("norm_coefficient_post", 0)});
}

constexpr CudaKernel kTrainingKernels[] = {
    {"cuda.ai.onnx.preview.training.Adagrad", MakeAdagrad},
    {"cuda.ai.onnx.preview.training.Adam", MakeAdam},
    {"cuda.ai.onnx.preview.training.Momentum", MakeMomentum},
};

}  // namespace

std::span<const CudaKernel> TrainingKernels() { return kTrainingKernels; }

}  // namespace gradloom::cuda
