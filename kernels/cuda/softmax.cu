// Softmax, LogSoftmax, Hardmax and LpNormalization: a group of threads per line, which reads it once for its statistics and once more to
// write the results.
#include <cmath>
#include <limits>

#include "kernels/cuda/exp_sum.cuh"
#include "kernels/cuda/lines.cuh"

namespace gradloom::cuda {
namespace {

template <typename T>
struct Softmax {
  Lines lines;
  bool logarithm;
  const T* in;
  T* out;

  template <typename Group>
  GRADLOOM_DEVICE void operator()(const Group& group, int64_t line) const {
    using A = Arithmetic<T>;
    const int64_t start = lines.start(line);
    ExpSum<A> all;
    for (int64_t j = group.thread(); j < lines.extent; j += group.threads()) all.Add(static_cast<A>(in[start + j * lines.step]));
    all = group.Reduce(all, JoinExpSums{});
    const A sum = all.Divisor(), scale = logarithm ? static_cast<A>(::log(sum)) : 1 / sum;
    for (int64_t j = group.thread(); j < lines.extent; j += group.threads()) {
      const int64_t index = start + j * lines.step;
      const A shifted = static_cast<A>(in[index]) - all.largest;
      out[index] = static_cast<T>(logarithm ? shifted - scale : static_cast<A>(::exp(shifted)) * scale);
    }
  }
};

// The first maximum. NaN is the maximum, as for ArgMax.
template <typename A>
struct ArgMaxValue {
  A value = -std::numeric_limits<A>::infinity();
  int64_t index = 0;
};

struct JoinArgMax {
  template <typename A>
  GRADLOOM_DEVICE ArgMaxValue<A> operator()(const ArgMaxValue<A>& a, const ArgMaxValue<A>& b) const {
    if (a.value > b.value || (a.value != a.value && b.value == b.value)) return a;
    if (b.value > a.value || (b.value != b.value && a.value == a.value)) return b;
    return b.index < a.index ? b : a;
  }
};

template <typename T>
struct Hardmax {
  Lines lines;
  const T* in;
  T* out;

  template <typename Group>
  GRADLOOM_DEVICE void operator()(const Group& group, int64_t line) const {
    using A = Arithmetic<T>;
    const int64_t start = lines.start(line);
    ArgMaxValue<A> best;
    for (int64_t j = group.thread(); j < lines.extent; j += group.threads()) {
      best = JoinArgMax{}(best, ArgMaxValue<A>{static_cast<A>(in[start + j * lines.step]), j});
    }
    best = group.Reduce(best, JoinArgMax{});
    for (int64_t j = group.thread(); j < lines.extent; j += group.threads()) {
      out[start + j * lines.step] = static_cast<T>(j == best.index ? 1.0f : 0.0f);
    }
  }
};

// x / norm, or 0 if the norm is 0.
template <typename T>
struct LpNormalization {
  Lines lines;
  bool absolute;
  const T* in;
  T* out;

  template <typename Group>
  GRADLOOM_DEVICE void operator()(const Group& group, int64_t line) const {
    using A = Arithmetic<T>;
    const int64_t start = lines.start(line);
    A sum = 0;
    for (int64_t j = group.thread(); j < lines.extent; j += group.threads()) {
      const A x = static_cast<A>(in[start + j * lines.step]);
      sum += absolute ? static_cast<A>(::fabs(x)) : x * x;
    }
    sum = group.Reduce(sum, Sum{});
    const A norm = absolute ? sum : static_cast<A>(::sqrt(sum));
    for (int64_t j = group.thread(); j < lines.extent; j += group.threads()) {
      const int64_t index = start + j * lines.step;
      out[index] = norm == 0 ? static_cast<T>(0.0f) : static_cast<T>(static_cast<A>(in[index]) / norm);
    }
  }
};

// f(lines, x, y) returns the function that processes a line.
template <typename F>
std::unique_ptr<Kernel> MakeLineKernel(const KernelCall& call, F f) {
  const Lines lines(call, call.inputs[0].shape, call.attributes.Int("axis", -1));
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel(
        [=](const Launch& l) { ForEachRowOf(lines.count, lines.extent, lines.step, l.stream, f(lines, l.In<T>(0), l.Out<T>(0))); });
  });
}

template <bool kLog>
std::unique_ptr<Kernel> MakeSoftmax(const KernelCall& call, const KernelSite&) {
  return MakeLineKernel(call, []<typename T>(const Lines& lines, const T* in, T* out) { return Softmax<T>{lines, kLog, in, out}; });
}

std::unique_ptr<Kernel> MakeHardmax(const KernelCall& call, const KernelSite&) {
  return MakeLineKernel(call, []<typename T>(const Lines& lines, const T* in, T* out) { return Hardmax<T>{lines, in, out}; });
}

std::unique_ptr<Kernel> MakeLpNormalization(const KernelCall& call, const KernelSite&) {
  const bool absolute = call.attributes.Int("p", 2) == 1;
  return MakeLineKernel(call, [=]<typename T>(const Lines& lines, const T* in, T* out) {
    return LpNormalization<T>{lines, absolute, in, out};
  });
}

constexpr CudaKernel kSoftmaxKernels[] = {
    {"cuda.Softmax", MakeSoftmax<false>},
    {"cuda.LogSoftmax", MakeSoftmax<true>},
    {"cuda.Hardmax", MakeHardmax},
    {"cuda.LpNormalization", MakeLpNormalization},
};

}  // namespace

std::span<const CudaKernel> SoftmaxKernels() { return kSoftmaxKernels; }

}  // namespace gradloom::cuda
