// The optimizers of ai.onnx.preview.training: (R, T, X..., G..., states...) -> (X..., states...).
#include <cmath>

#include "kernels/catalog/operands.h"
#include "kernels/reference/families.h"
#include "kernels/reference/numbers.h"

namespace gradloom {
namespace {

// An element with its gradient and states, as seen and changed by an update.
struct Element {
  double x, g;  // g includes the regularization term
  double state[2]{};
};

// Calls update(rate, step, element) for every element of every tensor. The inputs of a tensor are `count` operands apart.
template <int kStates, typename F>
void Update(const KernelCall& call, const void* const* in, void* const* out, F&& update) {
  const double rate = NumbersOf(call, in, 0)[0], step = NumbersOf(call, in, 1)[0];
  const double norm = call.attributes.Float("norm_coefficient", 0);
  const size_t count = (call.inputs.size() - 2) / (2 + kStates);
  for (size_t k = 0; k < count; ++k) {
    Numbers x = NumbersOf(call, in, 2 + k), states[kStates];
    const Numbers g = NumbersOf(call, in, 2 + count + k);
    for (size_t s = 0; s < kStates; ++s) states[s] = NumbersOf(call, in, 2 + (2 + s) * count + k);
    for (size_t i = 0; i < x.size(); ++i) {
      Element element{x[i], norm * x[i] + g.at(i)};
      for (size_t s = 0; s < kStates; ++s) element.state[s] = states[s].at(i);
      update(rate, step, element);
      x[i] = element.x;
      for (size_t s = 0; s < kStates; ++s) states[s][i] = element.state[s];
    }
    if (call.outputs[k].present()) StoreNumbers(call, k, x, out);
    for (size_t s = 0; s < kStates; ++s) {
      const size_t output = (1 + s) * count + k;
      if (HasOutput(call, output)) StoreNumbers(call, output, states[s], out);
    }
  }
}

void Momentum(const KernelCall& call, const void* const* in, void* const* out) {
  const double alpha = call.attributes.Float("alpha", 0), beta = call.attributes.Float("beta", 0);
  const bool nesterov = call.attributes.String("mode", "standard") == "nesterov";
  Update<1>(call, in, out, [=](double rate, double step, Element& e) {
    // In the first step, the gradient is not scaled by beta.
    double& velocity = e.state[0];
    velocity = alpha * velocity + (step > 0 ? beta : 1) * e.g;
    e.x -= rate * (nesterov ? e.g + alpha * velocity : velocity);
  });
}

void Adagrad(const KernelCall& call, const void* const* in, void* const* out) {
  const double decay = call.attributes.Float("decay_factor", 0), epsilon = call.attributes.Float("epsilon", 1e-6);
  Update<1>(call, in, out, [=](double rate, double step, Element& e) {
    e.state[0] += e.g * e.g;
    e.x -= rate / (1 + step * decay) * e.g / (std::sqrt(e.state[0]) + epsilon);
  });
}

void Adam(const KernelCall& call, const void* const* in, void* const* out) {
  const double alpha = call.attributes.Float("alpha", 0.9), beta = call.attributes.Float("beta", 0.999),
               epsilon = call.attributes.Float("epsilon", 1e-6), after = call.attributes.Float("norm_coefficient_post", 0);
  Update<2>(call, in, out, [=](double rate, double step, Element& e) {
    e.state[0] = alpha * e.state[0] + (1 - alpha) * e.g;
    e.state[1] = beta * e.state[1] + (1 - beta) * e.g * e.g;
    const double corrected = step > 0 ? rate * std::sqrt(1 - std::pow(beta, step)) / (1 - std::pow(alpha, step)) : rate;
    e.x = (1 - after) * (e.x - corrected * e.state[0] / (std::sqrt(e.state[1]) + epsilon));
  });
}

constexpr std::string_view kTraining = "ai.onnx.preview.training";
constexpr ReferenceKernel kKernels[] = {{"Adagrad", kTraining, Adagrad}, {"Adam", kTraining, Adam}, {"Momentum", kTraining, Momentum}};

}  // namespace

std::span<const ReferenceKernel> ReferenceTraining() { return kKernels; }

}  // namespace gradloom
