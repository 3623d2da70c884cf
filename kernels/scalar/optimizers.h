// The arithmetic of one element of each optimizer, shared by the CPU loops and CUDA. Formulas and order of operations are those of
// torch.optim's single-tensor functions (PyTorch 2.x, BSD); Lamb is that of You et al., "Large Batch Optimization for Deep Learning" (ICLR
// 2020), with bias correction, and Lion that of Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023).
//
// Each optimizer has options (attributes of the node), coefficients (derived from the options for one step, computed in double and rounded
// to T), and a function that updates one element in place.
//
// T is float or double, or a type that records operations (compiler/passes/update/traced.h), with which the compiler obtains these formulas
// as ONNX operators. So choices that depend on data must use Select.
#pragma once

#ifndef __CUDACC_RTC__
#include <cmath>
#include <cstdint>
#endif

// Files compiled per instruction set define this before, with internal linkage.
#ifndef GRADLOOM_SCALAR
#ifdef __CUDACC__
#define GRADLOOM_SCALAR __host__ __device__ inline
#else
#define GRADLOOM_SCALAR inline
#endif
#endif

namespace gradloom::scalar {

// On a GPU, a root or a quotient whose operands are zero or near the ends of the range takes ten times as long as others, and most moments
// of a table of which few rows are used are zero. So these are one step of Newton's method from the hardware's estimate for all operands,
// which is what others take, too.
GRADLOOM_SCALAR float Root(float x) {
#ifdef __CUDA_ARCH__
  float inverse;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  const float root = x * inverse, better = fmaf(fmaf(-root, root, x), 0.5f * inverse, root);
  return x == 0 || x == __int_as_float(0x7F800000) ? x : better;
#else
  return sqrtf(x);
#endif
}
GRADLOOM_SCALAR double Root(double x) { return sqrt(x); }

template <typename T>
GRADLOOM_SCALAR T Ratio(T a, T b) {
  return a / b;
}
#ifdef __CUDA_ARCH__
GRADLOOM_SCALAR float Ratio(float a, float b) {
  float inverse;
  asm("rcp.approx.f32 %0, %1;" : "=f"(inverse) : "f"(b));
  const float ratio = a * inverse, better = fmaf(fmaf(-b, ratio, a), inverse, ratio);
  return better == better ? better : ratio;
}
#endif

// An integral power; by squaring, which is short code without branches to other ranges.
template <typename D, typename N>
GRADLOOM_SCALAR D Power(D base, N exponent) {
  return pow(base, D(exponent));
}
GRADLOOM_SCALAR double Power(double base, int64_t exponent) {
  double power = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) power *= base;
    base *= base;
  }
  return power;
}

template <typename T>
GRADLOOM_SCALAR T Select(bool condition, T a, T b) {
  return condition ? a : b;
}

// Moments of parameters without a gradient decay until they are subnormal, and then stay so, because rounding makes up for the factor: with
// 0.9, four times the least number for ever. Some processors take many times as long for arithmetic with such numbers. So they become
// zero. GPUs have no such cost; other types of T record the formulas.
template <typename T>
GRADLOOM_SCALAR T NormalOrZero(T x) {
  return x;
}
#ifndef __CUDA_ARCH__
GRADLOOM_SCALAR float NormalOrZero(float x) { return fabsf(x) < 1.17549435e-38f ? 0.0f : x; }
#endif
// The same for a mean of squares, whose root is a denominator: it stays what it is unless epsilon outweighs the root of a subnormal number,
// at most 1.1e-19, by far.
template <typename T>
GRADLOOM_SCALAR T NormalSquare(T square, T) {
  return square;
}
#ifndef __CUDA_ARCH__
GRADLOOM_SCALAR float NormalSquare(float square, float eps) { return eps >= 1e-15f ? NormalOrZero(square) : square; }
#endif

// Adds the L2 penalty. With a weight_decay of exactly 0, the gradient is unchanged even if the parameter is infinite.
template <typename T>
GRADLOOM_SCALAR T Decayed(T gradient, T parameter, T weight_decay) {
  return weight_decay != T(0) ? gradient + weight_decay * parameter : gradient;
}

struct SgdOptions {
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
};

template <typename T, typename Bool = bool>
struct SgdStep {
  T lr, momentum, one_minus_dampening, weight_decay;
  bool nesterov;
  Bool first;
};

// `step` counts updates from 1; `lr` includes all factors. D is double and N is int64_t, or both are recording types.
template <typename T, typename D, typename N>
GRADLOOM_SCALAR auto MakeStep(const SgdOptions& o, D lr, N step) {
  return SgdStep<T, decltype(step <= 1)>{T(lr), T(o.momentum), T(1 - o.dampening), T(o.weight_decay), o.nesterov, step <= 1};
}

template <typename T, typename Bool>
GRADLOOM_SCALAR void SgdElement(const SgdStep<T, Bool>& s, T gradient, T& parameter) {
  parameter -= s.lr * Decayed(gradient, parameter, s.weight_decay);
}

template <typename T, typename Bool>
GRADLOOM_SCALAR void MomentumElement(const SgdStep<T, Bool>& s, T gradient, T& parameter, T& buffer) {
  const T g = Decayed(gradient, parameter, s.weight_decay);
  buffer = NormalOrZero(Select(s.first, g, s.momentum * buffer + s.one_minus_dampening * g));
  parameter -= s.lr * (s.nesterov ? g + s.momentum * buffer : buffer);
}

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = false;
};

template <typename T>
struct AdamStep {
  T one_minus_beta1, beta2, one_minus_beta2, eps, step_size, correction1, root_correction2, weight_decay, shrink;
  bool decoupled;
};

template <typename T, typename D, typename N>
GRADLOOM_SCALAR AdamStep<T> MakeStep(const AdamOptions& o, D lr, N step) {
  const D correction1 = 1 - Power(D(o.beta1), step);
  const D correction2 = 1 - Power(D(o.beta2), step);
  return {T(1 - o.beta1),
          T(o.beta2),
          T(1 - o.beta2),
          T(o.eps),
          T(lr / correction1),
          T(correction1),
          T(Root(correction2)),
          T(o.weight_decay),
          T(1 - lr * o.weight_decay),
          o.decoupled};
}

// The moments, common to Adam and Lamb.
template <typename T>
GRADLOOM_SCALAR void AdamMoments(const AdamStep<T>& s, T g, T& average, T& square) {
  average = NormalOrZero(average + s.one_minus_beta1 * (g - average));
  square = NormalSquare(s.beta2 * square + s.one_minus_beta2 * g * g, s.eps);
}

// `second` is the second moment in the denominator: the current one, or with amsgrad the largest so far.
template <typename T>
GRADLOOM_SCALAR void AdamMove(const AdamStep<T>& s, T average, T second, T& parameter) {
  parameter -= s.step_size * Ratio(average, Ratio(Root(second), s.root_correction2) + s.eps);
}

template <typename T>
GRADLOOM_SCALAR void AdamElement(const AdamStep<T>& s, T gradient, T& parameter, T& average, T& square) {
  if (s.decoupled) parameter *= s.shrink;
  AdamMoments(s, s.decoupled ? gradient : Decayed(gradient, parameter, s.weight_decay), average, square);
  AdamMove(s, average, square, parameter);
}

template <typename T>
GRADLOOM_SCALAR void AmsgradElement(const AdamStep<T>& s, T gradient, T& parameter, T& average, T& square, T& largest) {
  if (s.decoupled) parameter *= s.shrink;
  AdamMoments(s, s.decoupled ? gradient : Decayed(gradient, parameter, s.weight_decay), average, square);
  largest = Select(largest > square, largest, square);
  AdamMove(s, average, largest, parameter);
}

// Dozat, "Incorporating Nesterov Momentum into Adam" (2016), in torch.optim's form.
struct NAdamOptions {
  AdamOptions adam;
  double momentum_decay = 4e-3;
};

template <typename T>
struct NAdamStep {
  AdamStep<T> adam;
  T gradient_size, average_size;  // of the step along the gradient, and along its average
};

// The product of 1 - q^i / 2 over i from 1 to n, with q in (0, 1]: its logarithm is the sum over k of -(q^k + q^2k + ... + q^nk) / (k 2^k).
// The terms after the 40th, at most n / (40 2^40), change no bit of a float before the product itself is nothing.
template <typename D, typename N>
GRADLOOM_SCALAR D ProductOfMomenta(double q, N n) {
  if (q >= 1) return Power(D(0.5), n);
  const D last = Power(D(q), n);
  D logarithm(0), last_k(1);
  double q_k = 1, half_k = 1;
  for (int k = 1; k <= 40; ++k) {
    q_k *= q;
    half_k *= 0.5;
    last_k *= last;
    logarithm -= D(half_k / k * q_k / (1 - q_k)) * (1 - last_k);
  }
  return exp(logarithm);
}

template <typename T, typename D, typename N>
GRADLOOM_SCALAR NAdamStep<T> MakeStep(const NAdamOptions& o, D lr, N step) {
  const double q = pow(0.96, o.momentum_decay);
  const D power = Power(D(q), step), beta1(o.adam.beta1);
  const D momentum = beta1 * (1 - D(0.5) * power), next = beta1 * (1 - D(0.5 * q) * power);
  const D product = Power(beta1, step) * ProductOfMomenta<D>(q, step);
  return {MakeStep<T>(o.adam, lr, step), T(lr * (1 - momentum) / (1 - product)), T(lr * next / (1 - product * next))};
}

template <typename T>
GRADLOOM_SCALAR void NAdamElement(const NAdamStep<T>& s, T gradient, T& parameter, T& average, T& square) {
  const T g = Decayed(gradient, parameter, s.adam.weight_decay);
  AdamMoments(s.adam, g, average, square);
  const T root = Ratio(Root(square), s.adam.root_correction2) + s.adam.eps;
  parameter -= Ratio(s.gradient_size * g + s.average_size * average, root);
}

// Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond" (2020).
struct RAdamOptions {
  AdamOptions adam;
};

template <typename T, typename Bool = bool>
struct RAdamStep {
  AdamStep<T> adam;
  T rectification;
  Bool adapts;  // whether there are enough gradients for an estimate of their squares
};

template <typename T, typename D, typename N>
GRADLOOM_SCALAR auto MakeStep(const RAdamOptions& o, D lr, N step) {
  const double most = 2 / (1 - o.adam.beta2) - 1;
  const D power = Power(D(o.adam.beta2), step), correction2 = 1 - power;
  const D length = most - 2 * D(step) * power / correction2;
  const D rectification = Root((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length));
  return RAdamStep<T, decltype(length > D(5))>{MakeStep<T>(o.adam, lr, step), T(Root(correction2) * rectification), length > D(5)};
}

template <typename T, typename Bool>
GRADLOOM_SCALAR void RAdamElement(const RAdamStep<T, Bool>& s, T gradient, T& parameter, T& average, T& square) {
  AdamMoments(s.adam, Decayed(gradient, parameter, s.adam.weight_decay), average, square);
  const T step = s.adam.step_size * average;
  parameter -= Select(s.adapts, step * Ratio(s.rectification, Root(square) + s.adam.eps), step);
}

struct LionOptions {
  double beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
};

template <typename T>
struct LionStep {
  T lr, beta1, one_minus_beta1, beta2, one_minus_beta2, shrink;
};

template <typename T, typename D, typename N>
GRADLOOM_SCALAR LionStep<T> MakeStep(const LionOptions& o, D lr, N) {
  return {T(lr), T(o.beta1), T(1 - o.beta1), T(o.beta2), T(1 - o.beta2), T(1 - lr * o.weight_decay)};
}

template <typename T>
GRADLOOM_SCALAR void LionElement(const LionStep<T>& s, T gradient, T& parameter, T& average) {
  const T direction = s.beta1 * average + s.one_minus_beta1 * gradient;
  // Neither less nor greater: zero, or a NaN, which must propagate.
  const T sign = Select(direction > T(0), T(1), Select(direction < T(0), T(-1), direction));
  parameter = parameter * s.shrink - s.lr * sign;
  average = NormalOrZero(s.beta2 * average + s.one_minus_beta2 * gradient);
}

// Lamb's direction before scaling by the trust ratio; includes the weight decay.
template <typename T>
GRADLOOM_SCALAR T LambElement(const AdamStep<T>& s, T gradient, T parameter, T& average, T& square) {
  AdamMoments(s, gradient, average, square);
  const T adam = Ratio(Ratio(average, s.correction1), Ratio(Root(square), s.root_correction2) + s.eps);
  return adam + s.weight_decay * parameter;
}

// norm(parameter) / norm(direction), or 1 if either is 0, from the sums of squares.
template <typename T>
GRADLOOM_SCALAR T TrustRatio(T parameter_squares, T direction_squares) {
  return Select(parameter_squares > T(0) && direction_squares > T(0), Root(parameter_squares) / Root(direction_squares), T(1));
}

struct RmsPropOptions {
  double alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false;
};

template <typename T>
struct RmsPropStep {
  T lr, alpha, one_minus_alpha, eps, weight_decay, momentum;
  bool centered;
};

template <typename T, typename D, typename N>
GRADLOOM_SCALAR RmsPropStep<T> MakeStep(const RmsPropOptions& o, D lr, N) {
  return {T(lr), T(o.alpha), T(1 - o.alpha), T(o.eps), T(o.weight_decay), T(o.momentum), o.centered};
}

// `average` is used if centered, `buffer` if momentum > 0; otherwise pass any element.
template <typename T>
GRADLOOM_SCALAR void RmsPropElement(const RmsPropStep<T>& s, T gradient, T& parameter, T& square, T& buffer, T& average) {
  const T g = Decayed(gradient, parameter, s.weight_decay);
  const T mean_square = s.alpha * square + s.one_minus_alpha * g * g;
  // Centered, it is at least the square of the average, which may be subnormal as well.
  square = s.centered ? mean_square : NormalSquare(mean_square, s.eps);
  T variance = square;
  if (s.centered) {
    average = NormalOrZero(average + s.one_minus_alpha * (g - average));
    variance -= average * average;
  }
  const T scaled = Ratio(g, Root(variance) + s.eps);
  if (s.momentum > T(0)) {
    buffer = NormalOrZero(s.momentum * buffer + scaled);
    parameter -= s.lr * buffer;
  } else {
    parameter -= s.lr * scaled;
  }
}

struct AdagradOptions {
  double lr_decay = 0, eps = 1e-10, weight_decay = 0;
};

template <typename T>
struct AdagradStep {
  T lr, eps, weight_decay;
};

template <typename T, typename D, typename N>
GRADLOOM_SCALAR AdagradStep<T> MakeStep(const AdagradOptions& o, D lr, N step) {
  return {T(lr / (1 + D(step - 1) * o.lr_decay)), T(o.eps), T(o.weight_decay)};
}

template <typename T>
GRADLOOM_SCALAR void AdagradElement(const AdagradStep<T>& s, T gradient, T& parameter, T& sum) {
  const T g = Decayed(gradient, parameter, s.weight_decay);
  sum += g * g;
  parameter -= s.lr * Ratio(g, Root(sum) + s.eps);
}

struct AdadeltaOptions {
  double rho = 0.9, eps = 1e-6, weight_decay = 0;
};

template <typename T>
struct AdadeltaStep {
  T lr, rho, one_minus_rho, eps, weight_decay;
};

template <typename T, typename D, typename N>
GRADLOOM_SCALAR AdadeltaStep<T> MakeStep(const AdadeltaOptions& o, D lr, N) {
  return {T(lr), T(o.rho), T(1 - o.rho), T(o.eps), T(o.weight_decay)};
}

template <typename T>
GRADLOOM_SCALAR void AdadeltaElement(const AdadeltaStep<T>& s, T gradient, T& parameter, T& square, T& delta_square) {
  const T g = Decayed(gradient, parameter, s.weight_decay);
  square = NormalSquare(s.rho * square + s.one_minus_rho * g * g, s.eps);
  const T delta = Ratio(Root(delta_square + s.eps), Root(square + s.eps)) * g;
  delta_square = NormalSquare(s.rho * delta_square + s.one_minus_rho * delta * delta, s.eps);
  parameter -= s.lr * delta;
}

struct AdamaxOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
};

template <typename T>
struct AdamaxStep {
  T one_minus_beta1, beta2, eps, weight_decay, step_size;
};

template <typename T, typename D, typename N>
GRADLOOM_SCALAR AdamaxStep<T> MakeStep(const AdamaxOptions& o, D lr, N step) {
  return {T(1 - o.beta1), T(o.beta2), T(o.eps), T(o.weight_decay), T(lr / (1 - Power(D(o.beta1), step)))};
}

template <typename T>
GRADLOOM_SCALAR void AdamaxElement(const AdamaxStep<T>& s, T gradient, T& parameter, T& average, T& norm) {
  const T g = Decayed(gradient, parameter, s.weight_decay);
  average = NormalOrZero(average + s.one_minus_beta1 * (g - average));
  const T decayed = s.beta2 * norm, magnitude = Select(g < T(0), -g, g) + s.eps;
  // NaN gradients must propagate, so the unordered comparison selects `magnitude`.
  norm = Select(decayed > magnitude, decayed, magnitude);
  parameter -= s.step_size * Ratio(average, norm);
}

// The exponential moving average of a parameter, as torch.optim.swa_utils.get_ema_multi_avg_fn computes it: the first value is copied. With
// `warmup` the decay is at most (1 + t) / (10 + t) after t values, as in tf.train.ExponentialMovingAverage and in diffusers' EMAModel.
struct MovingAverageOptions {
  double decay = 0.999;
  bool warmup = false;
};

template <typename T, typename Bool = bool>
struct MovingAverageStep {
  T decay, one_minus_decay;
  Bool first;
};

template <typename T, typename D, typename N>
GRADLOOM_SCALAR auto MakeStep(const MovingAverageOptions& o, D, N step) {
  const D most(o.decay), done(step - 1), rising = (1 + done) / (10 + done);
  const D decay = o.warmup ? Select(rising < most, rising, most) : most;
  return MovingAverageStep<T, decltype(step <= 1)>{T(decay), T(1 - decay), step <= 1};
}

// torch.lerp(average, value, 1 - decay), which begins from the nearer end.
template <typename T, typename Bool>
GRADLOOM_SCALAR void MovingAverageElement(const MovingAverageStep<T, Bool>& s, T value, T& average) {
  const T difference = value - average;
  const T moved = Select(s.one_minus_decay < T(0.5), average + s.one_minus_decay * difference, value - s.decay * difference);
  average = NormalOrZero(Select(s.first, value, moved));
}

}  // namespace gradloom::scalar
