// Normalization over groups of channels, over axes, and over neighboring channels.
#include <algorithm>

#include "kernels/cuda/moments.cuh"
#include "kernels/cuda/normalization.cuh"

namespace gradloom::cuda {
namespace {

// The scratch memory: the normalization of each group; in the gradient, two sums per channel of each image and per group; records of the
// parts.
template <typename R>
struct GroupMemory {
  Normalizer<R>* normalizers;
  Pair<R>*by_channel, *by_group;

  GroupMemory(const ChannelGroups& shape, const Launch& l) {
    double* const start = static_cast<double*>(l.scratch);
    const int64_t groups = shape.images * shape.groups;
    normalizers = reinterpret_cast<Normalizer<R>*>(start);
    by_group = reinterpret_cast<Pair<R>*>(start + 3 * groups);
    by_channel = reinterpret_cast<Pair<R>*>(start + 5 * groups);
  }
};
double* ForwardRecords(const ChannelGroups& shape, const Launch& l) {
  return static_cast<double*>(l.scratch) + 3 * shape.images * shape.groups;
}
double* BackwardRecords(const ChannelGroups& shape, const Launch& l) {
  return static_cast<double*>(l.scratch) + shape.images * (5 * shape.groups + 2 * shape.channels);
}

template <typename T>
void ComputeNormalizers(const ChannelGroups& shape, double epsilon, const T* x, double* records, Normalizer<Arithmetic<T>>* normalizers,
                        cudaStream_t stream) {
  using R = Arithmetic<T>;
  MomentsOfSlices(
      shape.of_groups(), x, records, stream, GRADLOOM_ON_DEVICE(int64_t group, double mean, double squares) {
        const R pivot = static_cast<R>(mean), rest = static_cast<R>(mean - static_cast<double>(pivot));
        normalizers[group] = {pivot, rest, static_cast<R>(1 / ::sqrt(squares / static_cast<double>(shape.size()) + epsilon))};
      });
}

template <typename T>
void GroupNorm(const ChannelGroups& shape, double epsilon, const Launch& l) {
  using R = Arithmetic<T>;
  const T *const x = l.In<T>(0), *const scale = l.In<T>(1), *const bias = l.In<T>(2);
  T* const y = l.Out<T>(0);
  Normalizer<R>* const normalizers = GroupMemory<R>(shape, l).normalizers;
  ComputeNormalizers(shape, epsilon, x, ForwardRecords(shape, l), normalizers, l.stream);
  ForEachInPlanes(
      shape.of_channels(), l.stream, GRADLOOM_ON_DEVICE(int64_t i, int64_t plane) {
        const Normalizer<R>& normalizer = normalizers[Divide(plane, shape.per_group()).quotient];
        const int64_t c = Divide(plane, shape.channels).rest;
        y[i] = static_cast<T>(normalizer(static_cast<R>(x[i])) * static_cast<R>(scale[c]) + static_cast<R>(bias[c]));
      });
}

// Sums dy * h and dy over each channel of each image, where h is the normalized x.
template <typename T>
void SumChannels(const ChannelGroups& shape, const GroupMemory<Arithmetic<T>>& memory, const Launch& l) {
  using R = Arithmetic<T>;
  const T *const dy = l.In<T>(0), *const x = l.In<T>(1);
  const auto term = GRADLOOM_ON_DEVICE(int64_t plane, int64_t i) {
    const R g = static_cast<R>(dy[i]);
    return Pair<R>{g * memory.normalizers[Divide(plane, shape.per_group()).quotient](static_cast<R>(x[i])), g};
  };
  SumSlices<R>(
      shape.of_channels(), BackwardRecords(shape, l), l.stream, term, GRADLOOM_ON_DEVICE(int64_t plane, double product, double sum) {
        memory.by_channel[plane] = {static_cast<R>(product), static_cast<R>(sum)};
      });
}

template <typename R>
void ScaleGradient(const ChannelGroups& shape, const Pair<R>* by_channel, FloatResults dscale, FloatResults dbias, cudaStream_t stream) {
  ForEachRowOf(
      shape.channels, shape.images, shape.channels, stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t c) {
        const auto sums =
            SumOf<Pair<double>>(block, shape.images, [=](int64_t image) { return InDouble(by_channel[image * shape.channels + c]); });
        if (block.thread() != 0) return;
        dscale.Set(c, sums.first);
        dbias.Set(c, sums.second);
      });
}

// With d = dy * scale: dx = inv_std * (d - mean(d) - h * mean(d * h)), with means over the group.
template <typename T>
void InputGradient(const ChannelGroups& shape, const GroupMemory<Arithmetic<T>>& memory, const Launch& l) {
  using R = Arithmetic<T>;
  const T *const dy = l.In<T>(0), *const x = l.In<T>(1), *const scale = l.In<T>(2);
  T* const dx = l.Out<T>(0);
  ForEachRowOf(
      shape.images * shape.groups, shape.per_group(), 1, l.stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t group) {
        const auto sums = SumOf<Pair<R>>(block, shape.per_group(), [=](int64_t k) {
          const int64_t plane = group * shape.per_group() + k;
          const R factor = static_cast<R>(scale[Divide(plane, shape.channels).rest]) / static_cast<R>(shape.size());
          return Pair<R>{memory.by_channel[plane].first * factor, memory.by_channel[plane].second * factor};
        });
        if (block.thread() == 0) memory.by_group[group] = sums;
      });
  ForEachInPlanes(
      shape.of_channels(), l.stream, GRADLOOM_ON_DEVICE(int64_t i, int64_t plane) {
        const int64_t group = Divide(plane, shape.per_group()).quotient;
        const Normalizer<R>& normalizer = memory.normalizers[group];
        const Pair<R>& means = memory.by_group[group];
        const R d = static_cast<R>(dy[i]) * static_cast<R>(scale[Divide(plane, shape.channels).rest]);
        dx[i] = static_cast<T>(normalizer.inv_std * (d - means.second - normalizer(static_cast<R>(x[i])) * means.first));
      });
}

template <typename T>
void GroupNormGrad(const ChannelGroups& shape, double epsilon, const FloatVectors& v, const Launch& l) {
  const GroupMemory<Arithmetic<T>> memory(shape, l);
  ComputeNormalizers(shape, epsilon, l.In<T>(1), BackwardRecords(shape, l), memory.normalizers, l.stream);
  SumChannels<T>(shape, memory, l);
  ScaleGradient(shape, memory.by_channel, v.Out(l, 1), v.Out(l, 2), l.stream);
  InputGradient<T>(shape, memory, l);
}

// (x - mean) / (deviation + 1e-9) over the n elements along `across` of each line, of which the innermost are `step` apart.
template <typename T>
void MeanVariance(int64_t lines, int64_t n, int64_t step, const OffsetCalculator<1>& starts, const OffsetCalculator<1>& across,
                  const Launch& l) {
  using R = Arithmetic<T>;
  const T* const x = l.In<T>(0);
  T* const y = l.Out<T>(0);
  ForEachRowOf(
      lines, n, step, l.stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t line) {
        const int64_t start = starts(line).at[0];
        const auto d = ShiftedMomentsOf<R>(block, n, [=](int64_t k) { return static_cast<R>(x[start + across(k).at[0]]); });
        const R divisor = static_cast<R>(::sqrt(Variance(d, static_cast<R>(n)))) + static_cast<R>(1e-9);
        const Normalizer<R> normalizer{d.pivot, d.sum / static_cast<R>(n), R(1) / divisor};
        for (int64_t k = block.thread(); k < n; k += block.threads()) {
          const int64_t i = start + across(k).at[0];
          y[i] = static_cast<T>(normalizer(static_cast<R>(x[i])));
        }
      });
}

// Local response normalization: y = x * base^-beta, base = bias + alpha / size * sum of x^2 over a window of channels.
struct Response {
  double alpha, beta, bias;  // alpha is divided by the size of the window
  int64_t before, after;     // channels of the window on either side
  int64_t channels, points;

  Response(const Attributes& a, const Shape& x)
      : beta(a.Float("beta", 0.75)), bias(a.Float("bias", 1)), channels(x[1]), points(Product(x, 2, x.rank())) {
    const int64_t size = a.Int("size", 1);
    alpha = a.Float("alpha", 9.9999997473787516e-05) / static_cast<double>(size);
    before = (size - 1) / 2;
    after = size - 1 - before;
  }

  // The sum of f(element) over the window of element i, or with `adjoint`, over the elements whose windows contain it.
  template <typename R, typename F>
  GRADLOOM_DEVICE R Window(int64_t i, bool adjoint, F f) const {
    const int64_t c = Divide(Divide(i, points).quotient, channels).rest, reach = adjoint ? after : before, rest = before + after - reach;
    const int64_t first = c > reach ? c - reach : 0, last = c + rest < channels ? c + rest : channels - 1;
    R sum = 0;
    for (int64_t j = first; j <= last; ++j) sum += f(i + (j - c) * points);
    return sum;
  }
  template <typename R, typename T>
  GRADLOOM_DEVICE R Base(const T* x, int64_t i) const {
    const R squares = Window<R>(i, false, [x](int64_t j) { return static_cast<R>(x[j]) * static_cast<R>(x[j]); });
    return static_cast<R>(bias) + static_cast<R>(alpha) * squares;
  }
};

template <typename T>
void LocalResponse(const Response& r, int64_t n, const T* x, T* y, cudaStream_t stream) {
  using R = Arithmetic<T>;
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        y[i] = static_cast<T>(static_cast<R>(x[i]) * static_cast<R>(::pow(r.Base<R>(x, i), static_cast<R>(-r.beta))));
      });
}

// dx[i] = dy[i] base[i]^-beta - 2 alpha beta / size x[i] sum over j with i in the window of j of dy[j] x[j] base[j]^(-beta - 1). The terms
// of the sums are written to scratch memory first.
template <typename T>
void LocalResponseGrad(const Response& r, int64_t n, const Launch& l) {
  using R = Arithmetic<T>;
  const T *const dy = l.In<T>(0), *const x = l.In<T>(1);
  T* const dx = l.Out<T>(0);
  R* const terms = static_cast<R*>(l.scratch);
  ForEachElement(
      n, l.stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const R power = static_cast<R>(::pow(r.Base<R>(x, i), static_cast<R>(-r.beta - 1)));
        terms[i] = static_cast<R>(dy[i]) * static_cast<R>(x[i]) * power;
      });
  ForEachElement(
      n, l.stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const R own = static_cast<R>(dy[i]) * static_cast<R>(::pow(r.Base<R>(x, i), static_cast<R>(-r.beta)));
        const R across = r.Window<R>(i, true, [=](int64_t j) { return terms[j]; });
        dx[i] = static_cast<T>(own - static_cast<R>(2 * r.alpha * r.beta) * static_cast<R>(x[i]) * across);
      });
}

}  // namespace

std::unique_ptr<Kernel> MakeGroupNorm(const KernelCall& call, const KernelSite&) {
  const ChannelGroups shape(call);
  const double epsilon = call.attributes.Float("epsilon", 1e-5);
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { GroupNorm<T>(shape, epsilon, l); });
  });
}

std::unique_ptr<Kernel> MakeGroupNormGrad(const KernelCall& call, const KernelSite&) {
  const ChannelGroups shape(call);
  const double epsilon = call.attributes.Float("epsilon", 1e-5);
  const FloatVectors v(call);
  return WithFloating(call.inputs[1].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { GroupNormGrad<T>(shape, epsilon, v, l); });
  });
}

std::unique_ptr<Kernel> MakeMeanVariance(const KernelCall& call, const KernelSite&) {
  const Shape& shape = call.inputs[0].shape;
  Shape kept = shape, across(std::vector<int64_t>(static_cast<size_t>(shape.rank()), 1));
  for (int64_t axis : call.attributes.Ints("axes", {0, 2, 3})) {
    const int a = AxisOf(call, axis, shape.rank());
    across[a] = shape[a];
    kept[a] = 1;
  }
  const OffsetCalculator<1> starts(kept, {shape.strides()}), steps(across, {shape.strides()});
  const int64_t lines = kept.elements(), n = across.elements(), step = steps.rank > 0 ? steps.strides[0][steps.rank - 1] : 1;
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { MeanVariance<T>(lines, n, step, starts, steps, l); });
  });
}

std::unique_ptr<Kernel> MakeLocalResponse(const KernelCall& call, const KernelSite&) {
  const Response response(call.attributes, call.inputs[0].shape);
  const int64_t n = call.inputs[0].shape.elements();
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { LocalResponse(response, n, l.In<T>(0), l.Out<T>(0), l.stream); });
  });
}

std::unique_ptr<Kernel> MakeLocalResponseGrad(const KernelCall& call, const KernelSite&) {
  const Response response(call.attributes, call.inputs[1].shape);
  const int64_t n = call.inputs[1].shape.elements();
  return WithFloating(call.inputs[1].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { LocalResponseGrad<T>(response, n, l); });
  });
}

}  // namespace gradloom::cuda
