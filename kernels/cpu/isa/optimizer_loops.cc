// One pass over the elements of a parameter, its gradient and its states, with the arithmetic of kernels/scalar/optimizers.h.
#define GRADLOOM_SCALAR static inline __attribute__((always_inline, unused))
#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"
#include "kernels/scalar/optimizers.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

using namespace scalar;

// An optimizer with kStates states; f(step, gradient, parameter, states) updates one element in place. Outputs may be the inputs.
template <typename Step, int kStates, typename F>
GRADLOOM_INLINE void Update(const UpdateArgs& args, F f) {
  static_assert(kStates <= 3);
  const Step step = *static_cast<const Step*>(args.step);
  const float *g = args.gradient, *p = args.parameter;
  const float *s0 = args.states[0], *s1 = args.states[1], *s2 = args.states[2];
  float *q = args.next, *t0 = args.next_states[0], *t1 = args.next_states[1], *t2 = args.next_states[2];
  const float clip = args.clip;
  const Index n = args.n;
#pragma omp simd
  for (Index i = 0; i < n; ++i) {
    float parameter = p[i];
    float a = kStates > 0 ? s0[i] : 0.0f, b = kStates > 1 ? s1[i] : 0.0f, c = kStates > 2 ? s2[i] : 0.0f;
    f(step, g[i] * clip, parameter, a, b, c);
    q[i] = parameter;
    if constexpr (kStates > 0) t0[i] = a;
    if constexpr (kStates > 1) t1[i] = b;
    if constexpr (kStates > 2) t2[i] = c;
  }
}

#define GRADLOOM_UPDATE(name, step, states, body)                                                                                          \
  void name(const UpdateArgs& args) {                                                                                                      \
    Update<step<float>, states>(                                                                                                           \
        args, [](const step<float>& s, float g, float& p, [[maybe_unused]] float& a, [[maybe_unused]] float& b, [[maybe_unused]] float& c) \
                  __attribute__((always_inline)) { body; });                                                                               \
  }

GRADLOOM_UPDATE(Sgd, SgdStep, 0, SgdElement(s, g, p))
GRADLOOM_UPDATE(Momentum, SgdStep, 1, MomentumElement(s, g, p, a))
GRADLOOM_UPDATE(Adam, AdamStep, 2, AdamElement(s, g, p, a, b))
GRADLOOM_UPDATE(Amsgrad, AdamStep, 3, AmsgradElement(s, g, p, a, b, c))
GRADLOOM_UPDATE(NAdam, NAdamStep, 2, NAdamElement(s, g, p, a, b))
GRADLOOM_UPDATE(RAdam, RAdamStep, 2, RAdamElement(s, g, p, a, b))
GRADLOOM_UPDATE(Lion, LionStep, 1, LionElement(s, g, p, a))
GRADLOOM_UPDATE(RmsProp1, RmsPropStep, 1, RmsPropElement(s, g, p, a, b, c))
// The states are the square average, then the momentum buffer, then the average, as far as they exist.
GRADLOOM_UPDATE(RmsProp2, RmsPropStep, 2, RmsPropElement(s, g, p, a, b, b))
GRADLOOM_UPDATE(RmsProp3, RmsPropStep, 3, RmsPropElement(s, g, p, a, b, c))
GRADLOOM_UPDATE(Adagrad, AdagradStep, 1, AdagradElement(s, g, p, a))
GRADLOOM_UPDATE(Adadelta, AdadeltaStep, 2, AdadeltaElement(s, g, p, a, b))
GRADLOOM_UPDATE(Adamax, AdamaxStep, 2, AdamaxElement(s, g, p, a, b))
GRADLOOM_UPDATE(Lamb, AdamStep, 2, p = LambElement(s, g, p, a, b))
GRADLOOM_UPDATE(MovingAverage, MovingAverageStep, 0, MovingAverageElement(s, g, p))

}  // namespace

// In the order of enum UpdateLoop.
const UpdateFunction kUpdates[] = {Sgd,      Momentum, Adam,    Amsgrad,  NAdam,  RAdam, Lion,         RmsProp1,
                                   RmsProp2, RmsProp3, Adagrad, Adadelta, Adamax, Lamb,  MovingAverage};

}  // namespace gradloom::GRADLOOM_ISA
