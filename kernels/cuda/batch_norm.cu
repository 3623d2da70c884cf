// Batch normalization: sums over each channel in parts, then coefficients for each channel, then a linear function of each element.
#include <limits>

#include "kernels/cuda/moments.cuh"
#include "kernels/cuda/rounding.cuh"

namespace gradloom::cuda {
namespace {

// y = (x - pivot) slope + shift for a channel. The part of the mean lost by rounding to `pivot` is included in the shift, so that an x
// close to the mean gets the right sign, which matters to a ReLU that follows.
template <typename R>
struct ChannelLines {
  static constexpr int kNumbers = 3;
  R* numbers;  // [kNumbers, channels]
  int64_t channels;

  GRADLOOM_DEVICE void Set(int64_t c, double mean, double slope, double bias) const {
    const R pivot = static_cast<R>(mean);
    numbers[c] = pivot;
    numbers[channels + c] = static_cast<R>(slope);
    numbers[2 * channels + c] = static_cast<R>(bias + (static_cast<double>(pivot) - mean) * slope);
  }
  // From a channel's numbers and x.
  GRADLOOM_DEVICE static R Of(const R (&own)[kNumbers], const R (&x)[1]) { return (x[0] - own[0]) * own[1] + own[2]; }
};

// dx = slope (dy - level - (x - mean) along) for a channel.
template <typename R>
struct ChannelSlopes {
  static constexpr int kNumbers = 4;
  R* numbers;  // [kNumbers, channels]
  int64_t channels;

  // From the sum of dy and the sum of dy (x - mean) over `count` elements.
  GRADLOOM_DEVICE void Set(int64_t c, double sum, double product, double count, double scale, double mean, double inv_std) const {
    numbers[c] = static_cast<R>(scale * inv_std);
    numbers[channels + c] = static_cast<R>(sum / count);
    numbers[2 * channels + c] = static_cast<R>(product * inv_std * inv_std / count);
    numbers[3 * channels + c] = static_cast<R>(mean);
  }
  // From a channel's numbers, dy and x.
  GRADLOOM_DEVICE static R Of(const R (&own)[kNumbers], const R (&in)[2]) { return own[0] * (in[0] - own[1] - (in[1] - own[3]) * own[2]); }
};

// The scratch memory: records of the parts, then at most four numbers per channel.
double* Records(const Launch& l) { return static_cast<double*>(l.scratch); }
template <typename R>
R* ChannelNumbers(const Slices& s, const Launch& l) {
  return reinterpret_cast<R*>(Records(l) + s.records());
}

// MapRows for slices that are not rows.
template <int kWidth, typename T, int kInputs, typename Map>
void MapPlanes(const Slices& s, const Map& map, const ElementInputs<T, kInputs>& from, T* to, cudaStream_t stream) {
  using R = Arithmetic<T>;
  const WordsOfSlices words(s, kWidth);
  ForEachInPlanes(
      words.words, stream, GRADLOOM_ON_DEVICE(int64_t i, int64_t plane) {
        const int64_t c = Divide(plane, s.slices).rest;
        R own[Map::kNumbers];
        for (int k = 0; k < Map::kNumbers; ++k) own[k] = map.numbers[k * s.slices + c];
        AlignedVector<T, kWidth> loaded[kInputs], result;
        for (int k = 0; k < kInputs; ++k) loaded[k] = WordAt<kWidth>(from.at[k] + i * kWidth);
        for (int v = 0; v < kWidth; ++v) {
          R elements[kInputs];
          for (int k = 0; k < kInputs; ++k) elements[k] = static_cast<R>(loaded[k].at[v]);
          result.at[v] = static_cast<T>(map.Of(own, elements));
        }
        *reinterpret_cast<AlignedVector<T, kWidth>*>(to + i * kWidth) = result;
      });
}

template <typename T, int kInputs, typename Map>
void MapChannels(const Slices& s, const Map& map, const ElementInputs<T, kInputs>& from, T* to, cudaStream_t stream) {
  WithWidth<T>(s.is_rows() ? s.slices : s.points, [&]<int kWidth>(std::integral_constant<int, kWidth>) {
    if (s.is_rows())
      MapRows<kWidth>(s, map, from, to, stream);
    else
      MapPlanes<kWidth>(s, map, from, to, stream);
  });
}

template <typename T>
void Apply(const Slices& s, const ChannelLines<Arithmetic<T>>& lines, const T* x, T* y, cudaStream_t stream) {
  MapChannels(s, lines, ElementInputs<T, 1>{{x}}, y, stream);
}

template <typename T>
void ApplyGradient(const Slices& s, const ChannelSlopes<Arithmetic<T>>& slopes, const T* dy, const T* x, T* dx, cudaStream_t stream) {
  MapChannels(s, slopes, ElementInputs<T, 2>{{dy, x}}, dx, stream);
}

template <typename T>
void Train(const Slices& s, double epsilon, const FloatVectors& v, const Launch& l) {
  const ChannelLines<Arithmetic<T>> lines{ChannelNumbers<Arithmetic<T>>(s, l), s.slices};
  const FloatOperand scale = v.In(l, 1), bias = v.In(l, 2);
  const FloatResults means = v.Out(l, 1), inv_stds = v.Out(l, 2), variances = v.Out(l, 3);
  MomentsOfSlices(
      s, l.In<T>(0), Records(l), l.stream, GRADLOOM_ON_DEVICE(int64_t c, double mean, double squares) {
        const double variance = squares / static_cast<double>(s.count()), inv_std = 1 / ::sqrt(variance + epsilon);
        lines.Set(c, mean, scale[c] * inv_std, bias[c]);
        means.Set(c, mean);
        inv_stds.Set(c, inv_std);
        variances.Set(c, variance);
      });
  Apply(s, lines, l.In<T>(0), l.Out<T>(0), l.stream);
}

std::unique_ptr<Kernel> MakeTrain(const KernelCall& call, const KernelSite&) {
  const Slices s = Slices::OfChannels(call.inputs[0]);
  const double epsilon = call.attributes.Float("epsilon", 1e-5);
  const FloatVectors v(call);
  return WithFloating(call.inputs[0].dtype,
                      [&]<typename T>(std::type_identity<T>) { return MakeKernel([=](const Launch& l) { Train<T>(s, epsilon, v, l); }); });
}

// The statistics, and the coefficients of y = (x - center) factor + offset for pointwise operators: the numbers of ChannelLines.
template <typename T>
void Line(const Slices& s, double epsilon, const FloatVectors& v, const Launch& l) {
  const FloatOperand scale = v.In(l, 1), bias = v.In(l, 2);
  const FloatResults means = v.Out(l, 0), inv_stds = v.Out(l, 1), variances = v.Out(l, 2);
  const FloatResults centres = v.Out(l, 3), factors = v.Out(l, 4), offsets = v.Out(l, 5);
  MomentsOfSlices(
      s, l.In<T>(0), Records(l), l.stream, GRADLOOM_ON_DEVICE(int64_t c, double mean, double squares) {
        const double variance = squares / static_cast<double>(s.count()), inv_std = 1 / ::sqrt(variance + epsilon);
        means.Set(c, mean);
        inv_stds.Set(c, inv_std);
        variances.Set(c, variance);
        centres.Set(c, mean);
        factors.Set(c, scale[c] * inv_std);
        offsets.Set(c, bias[c] + (centres.Rounded(mean) - mean) * scale[c] * inv_std);
      });
}

std::unique_ptr<Kernel> MakeLine(const KernelCall& call, const KernelSite&) {
  const Slices s = Slices::OfChannels(call.inputs[0]);
  const double epsilon = call.attributes.Float("epsilon", 1e-5);
  const FloatVectors v(call);
  return WithFloating(call.inputs[0].dtype,
                      [&]<typename T>(std::type_identity<T>) { return MakeKernel([=](const Launch& l) { Line<T>(s, epsilon, v, l); }); });
}

// RecordRowGradients for slices that are not rows.
template <int kWidth, typename T, typename Source>
void RecordPlaneGradients(const Slices& s, const Source& gradient, const T* x, FloatOperand means, double* records, cudaStream_t stream) {
  using R = Arithmetic<T>;
  const WordsOfSlices word(s, kWidth);
  RecordParts(
      s, records, stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t c, int64_t first, int64_t n) {
        const R mean = static_cast<R>(means[c]);
        const typename Source::Channel channel = gradient.ChannelOf(c);
        return InDouble(SumOf<Pair<R>>(block, n / kWidth, [=](int64_t k) {
          const int64_t at = word(c, first / kWidth + k);
          const auto slopes = gradient.template Load<kWidth>(at);
          const AlignedVector<T, kWidth> values = WordAt<kWidth>(x + at);
          AlignedVector<T, kWidth> made;
          Pair<R> sums{};
          for (int v = 0; v < kWidth; ++v) {
            made.at[v] = gradient.Of(slopes, v, values.at[v], channel);
            const R g = static_cast<R>(made.at[v]);
            sums = sums + Pair<R>{g, g * (static_cast<R>(values.at[v]) - mean)};
          }
          gradient.Keep(at, made);
          return sums;
        }));
      });
}

// Sums dy and dy (x - mean) over each channel, where `gradient` is the source of dy.
template <typename T, typename Source, typename Finish>
void SumGradients(const Slices& s, const Source& gradient, const T* x, FloatOperand means, double* records, cudaStream_t stream,
                  const Finish& finish) {
  WithWidth<T>(s.is_rows() ? s.slices : s.points, [&]<int kWidth>(std::integral_constant<int, kWidth>) {
    if (s.is_rows())
      RecordRowGradients<kWidth>(s, gradient, x, means, records, stream);
    else
      RecordPlaneGradients<kWidth>(s, gradient, x, means, records, stream);
  });
  SumRecords(s, records, stream, finish);
}

template <typename T>
void TrainGradient(const Slices& s, const FloatVectors& v, const Launch& l) {
  const ChannelSlopes<Arithmetic<T>> slopes{ChannelNumbers<Arithmetic<T>>(s, l), s.slices};
  const FloatOperand scale = v.In(l, 2), means = v.In(l, 3), inv_stds = v.In(l, 4);
  const FloatResults dscale = v.Out(l, 1), dbias = v.Out(l, 2);
  const auto finish = GRADLOOM_ON_DEVICE(int64_t c, double sum, double product) {
    slopes.Set(c, sum, product, static_cast<double>(s.count()), scale[c], means[c], inv_stds[c]);
    dscale.Set(c, product * inv_stds[c]);
    dbias.Set(c, sum);
  };
  SumGradients(s, StoredGradient<T>{l.In<T>(0)}, l.In<T>(1), means, Records(l), l.stream, finish);
  if (v.out[0] != DType::kUndefined) ApplyGradient(s, slopes, l.In<T>(0), l.In<T>(1), l.Out<T>(0), l.stream);
}

std::unique_ptr<Kernel> MakeTrainGrad(const KernelCall& call, const KernelSite&) {
  const Slices s = Slices::OfChannels(call.inputs[1]);
  const FloatVectors v(call);
  return WithFloating(call.inputs[1].dtype,
                      [&]<typename T>(std::type_identity<T>) { return MakeKernel([=](const Launch& l) { TrainGradient<T>(s, v, l); }); });
}

// The gradient passes where low < y < high. A bound that is NaN is none.
struct GradientBounds {
  float low, high;

  explicit GradientBounds(const Attributes& attributes)
      : low(static_cast<float>(attributes.Float("low", kNone))), high(static_cast<float>(attributes.Float("high", kNone))) {}
  GRADLOOM_DEVICE bool Pass(float y) const { return !(y <= low || y >= high); }

 private:
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
};

// (x - mean) factor + offset, rounded to T, with the bits of the pointwise program of the forward pass, where no product and sum are one
// operation.
template <typename T>
GRADLOOM_DEVICE float LineOf(float x, float mean, float factor, float offset) {
  return static_cast<float>(static_cast<T>(SeparateProduct(x - mean, factor) + offset));
}

// A gradient behind a mask that is computed from x.
template <typename T>
struct RemaskedGradient {
  const T* dy;
  FloatOperand mean;
  const float *factor, *offset;
  GradientBounds bounds;

  struct Channel {
    float mean, factor, offset;
  };
  GRADLOOM_DEVICE Channel ChannelOf(int64_t c) const { return {static_cast<float>(mean[c]), factor[c], offset[c]}; }

  template <int kWidth>
  using Words = typename StoredGradient<T>::template Words<kWidth>;
  template <int kWidth>
  GRADLOOM_DEVICE Words<kWidth> Load(int64_t at) const {
    return {WordAt<kWidth>(dy + at)};
  }
  template <int kWidth>
  GRADLOOM_DEVICE T Of(const Words<kWidth>& words, int v, T x, const Channel& c) const {
    return bounds.Pass(LineOf<T>(static_cast<float>(x), c.mean, c.factor, c.offset)) ? words.dy.at[v] : T(0.0F);
  }
  template <int kWidth>
  GRADLOOM_DEVICE void Keep(int64_t, const AlignedVector<T, kWidth>&) const {}
};

// A gradient, or with kSum the sum of two, behind a mask by y. Writes it to `g`, which may be any of the operands.
template <typename T, bool kSum>
struct MaskedGradient {
  const T *dy, *more, *y;
  T* g;
  GradientBounds bounds;

  using Channel = typename StoredGradient<T>::Channel;
  GRADLOOM_DEVICE Channel ChannelOf(int64_t) const { return {}; }

  template <int kWidth>
  struct Words {
    AlignedVector<T, kWidth> dy, more, y;
  };
  template <int kWidth>
  GRADLOOM_DEVICE Words<kWidth> Load(int64_t at) const {
    Words<kWidth> words;
    words.dy = WordAt<kWidth>(dy + at);
    if constexpr (kSum) words.more = WordAt<kWidth>(more + at);
    words.y = WordAt<kWidth>(y + at);
    return words;
  }
  template <int kWidth>
  GRADLOOM_DEVICE T Of(const Words<kWidth>& words, int v, T, const Channel&) const {
    T sum = words.dy.at[v];
    if constexpr (kSum) sum = static_cast<T>(static_cast<float>(sum) + static_cast<float>(words.more.at[v]));
    return bounds.Pass(static_cast<float>(words.y.at[v])) ? sum : T(0.0F);
  }
  template <int kWidth>
  GRADLOOM_DEVICE void Keep(int64_t at, const AlignedVector<T, kWidth>& made) const {
    *reinterpret_cast<AlignedVector<T, kWidth>*>(g + at) = made;
  }
};

// ChannelSlopes for a RemaskedGradient.
template <typename T>
struct RemaskedSlopes {
  static constexpr int kNumbers = 6;
  float* numbers;  // [kNumbers, channels]: those of ChannelSlopes, the factor and the offset
  int64_t channels;
  GradientBounds bounds;

  GRADLOOM_DEVICE void Set(int64_t c, double sum, double product, double count, double scale, double mean, double inv_std, float factor,
                           float offset) const {
    ChannelSlopes<float>{numbers, channels}.Set(c, sum, product, count, scale, mean, inv_std);
    numbers[4 * channels + c] = factor;
    numbers[5 * channels + c] = offset;
  }
  GRADLOOM_DEVICE float Of(const float (&own)[kNumbers], const float (&in)[2]) const {
    const float slopes[] = {own[0], own[1], own[2], own[3]};
    const float masked[] = {bounds.Pass(LineOf<T>(in[1], own[3], own[4], own[5])) ? in[0] : 0.0F, in[1]};
    return ChannelSlopes<float>::Of(slopes, masked);
  }
};

// The operands and results of a masked gradient that all its forms have.
struct MaskedOperands {
  FloatOperand scale, means, inv_stds;
  FloatResults dscale, dbias;

  MaskedOperands(const FloatVectors& v, const Launch& l)
      : scale(v.In(l, 4)), means(v.In(l, 5)), inv_stds(v.In(l, 6)), dscale(v.Out(l, 1)), dbias(v.Out(l, 2)) {}
};

// With the mask from x: neither the masked gradient nor y is in memory.
template <typename T>
void RemaskedTrainGradient(const Slices& s, const GradientBounds& bounds, const FloatVectors& v, const Launch& l) {
  const RemaskedSlopes<T> slopes{ChannelNumbers<float>(s, l), s.slices, bounds};
  const MaskedOperands o(v, l);
  const RemaskedGradient<T> gradient{l.In<T>(0), o.means, l.In<float>(7), l.In<float>(8), bounds};
  const auto finish = GRADLOOM_ON_DEVICE(int64_t c, double sum, double product) {
    slopes.Set(c, sum, product, static_cast<double>(s.count()), o.scale[c], o.means[c], o.inv_stds[c], gradient.factor[c],
               gradient.offset[c]);
    o.dscale.Set(c, product * o.inv_stds[c]);
    o.dbias.Set(c, sum);
  };
  SumGradients(s, gradient, l.In<T>(3), o.means, Records(l), l.stream, finish);
  if (v.out[0] != DType::kUndefined) MapChannels(s, slopes, ElementInputs<T, 2>{{l.In<T>(0), l.In<T>(3)}}, l.Out<T>(0), l.stream);
}

// With the mask from y: the first pass writes the masked gradient.
template <typename T, bool kSum>
void MaskedTrainGradient(const Slices& s, const GradientBounds& bounds, const FloatVectors& v, const Launch& l) {
  const ChannelSlopes<float> slopes{ChannelNumbers<float>(s, l), s.slices};
  const MaskedOperands o(v, l);
  const MaskedGradient<T, kSum> gradient{l.In<T>(0), kSum ? l.In<T>(1) : nullptr, l.In<T>(2), l.Out<T>(3), bounds};
  const auto finish = GRADLOOM_ON_DEVICE(int64_t c, double sum, double product) {
    slopes.Set(c, sum, product, static_cast<double>(s.count()), o.scale[c], o.means[c], o.inv_stds[c]);
    o.dscale.Set(c, product * o.inv_stds[c]);
    o.dbias.Set(c, sum);
  };
  SumGradients(s, gradient, l.In<T>(3), o.means, Records(l), l.stream, finish);
  if (v.out[0] != DType::kUndefined) ApplyGradient<T>(s, slopes, gradient.g, l.In<T>(3), l.Out<T>(0), l.stream);
}

template <typename T>
std::unique_ptr<Kernel> MakeMaskedGradOf(const KernelCall& call) {
  const Slices s = Slices::OfChannels(call.inputs[3]);
  const GradientBounds bounds(call.attributes);
  const FloatVectors v(call);
  if (!call.inputs[2].present()) return MakeKernel([=](const Launch& l) { RemaskedTrainGradient<T>(s, bounds, v, l); });
  if (!call.inputs[1].present()) return MakeKernel([=](const Launch& l) { MaskedTrainGradient<T, false>(s, bounds, v, l); });
  return MakeKernel([=](const Launch& l) { MaskedTrainGradient<T, true>(s, bounds, v, l); });
}

std::unique_ptr<Kernel> MakeMaskedGrad(const KernelCall& call, const KernelSite&) {
  switch (call.inputs[3].dtype) {
    case DType::kFloat16: return MakeMaskedGradOf<Half>(call);
    case DType::kBfloat16: return MakeMaskedGradOf<Bfloat16>(call);
    default: return MakeMaskedGradOf<float>(call);
  }
}

// ONNX's operator with given statistics.
template <typename T>
void Inference(const Slices& s, double epsilon, const FloatVectors& v, const Launch& l) {
  const ChannelLines<Arithmetic<T>> lines{ChannelNumbers<Arithmetic<T>>(s, l), s.slices};
  const FloatOperand scale = v.In(l, 1), bias = v.In(l, 2), means = v.In(l, 3), variances = v.In(l, 4);
  ForEachElement(
      s.slices, l.stream, GRADLOOM_ON_DEVICE(int64_t c) { lines.Set(c, means[c], scale[c] / ::sqrt(variances[c] + epsilon), bias[c]); });
  Apply(s, lines, l.In<T>(0), l.Out<T>(0), l.stream);
}

// ONNX's operator in training mode: updates the running statistics by ONNX's rule, with the biased variance.
template <typename T>
void Running(const Slices& s, double epsilon, double momentum, const FloatVectors& v, const Launch& l) {
  const ChannelLines<Arithmetic<T>> lines{ChannelNumbers<Arithmetic<T>>(s, l), s.slices};
  const FloatOperand scale = v.In(l, 1), bias = v.In(l, 2), means = v.In(l, 3), variances = v.In(l, 4);
  const FloatResults next_means = v.Out(l, 1), next_variances = v.Out(l, 2);
  MomentsOfSlices(
      s, l.In<T>(0), Records(l), l.stream, GRADLOOM_ON_DEVICE(int64_t c, double mean, double squares) {
        const double variance = squares / static_cast<double>(s.count());
        lines.Set(c, mean, scale[c] / ::sqrt(variance + epsilon), bias[c]);
        next_means.Set(c, means[c] * momentum + mean * (1 - momentum));
        next_variances.Set(c, variances[c] * momentum + variance * (1 - momentum));
      });
  Apply(s, lines, l.In<T>(0), l.Out<T>(0), l.stream);
}

std::unique_ptr<Kernel> MakeBatchNormalization(const KernelCall& call, const KernelSite&) {
  const Slices s = Slices::OfChannels(call.inputs[0]);
  const double epsilon = call.attributes.Float("epsilon", 1e-5), momentum = call.attributes.Float("momentum", 0.9);
  const bool training = call.attributes.Int("training_mode", 0) == 1;
  const FloatVectors v(call);
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { training ? Running<T>(s, epsilon, momentum, v, l) : Inference<T>(s, epsilon, v, l); });
  });
}

// Sums [2, C] in double: of x and of its squares.
template <typename T>
void Sums(const Slices& s, const Launch& l) {
  double* const sums = l.Out<double>(0);
  MomentsOfSlices(
      s, l.In<T>(0), Records(l), l.stream, GRADLOOM_ON_DEVICE(int64_t c, double mean, double squares) {
        const double count = static_cast<double>(s.count());
        sums[c] = count > 0 ? mean * count : 0;
        sums[s.slices + c] = count > 0 ? squares + mean * mean * count : 0;
      });
}

std::unique_ptr<Kernel> MakeSums(const KernelCall& call, const KernelSite&) {
  const Slices s = Slices::OfChannels(call.inputs[0]);
  return WithFloating(call.inputs[0].dtype,
                      [&]<typename T>(std::type_identity<T>) { return MakeKernel([=](const Launch& l) { Sums<T>(s, l); }); });
}

// The statistics of a channel over the whole batch, from its sums.
struct ChannelStatistics {
  const double* sums;
  int64_t channels;
  double count;

  GRADLOOM_DEVICE double Mean(int64_t c) const { return sums[c] / count; }
  GRADLOOM_DEVICE double Variance(int64_t c) const {
    const double variance = sums[channels + c] / count - Mean(c) * Mean(c);
    return variance < 0 ? 0 : variance;
  }
};

void Statistics(const ChannelStatistics& batch, double epsilon, FloatResults means, FloatResults inv_stds, FloatResults variances,
                cudaStream_t stream) {
  ForEachElement(
      batch.channels, stream, GRADLOOM_ON_DEVICE(int64_t c) {
        const double variance = batch.Variance(c);
        means.Set(c, batch.Mean(c));
        inv_stds.Set(c, 1 / ::sqrt(variance + epsilon));
        variances.Set(c, variance);
      });
}

std::unique_ptr<Kernel> MakeStatistics(const KernelCall& call, const KernelSite&) {
  const int64_t channels = call.inputs[1].shape.elements();
  const double epsilon = call.attributes.Float("epsilon", 1e-5), count = call.attributes.Float("count", 1);
  const FloatVectors v(call);
  return MakeKernel([=](const Launch& l) {
    Statistics({l.In<double>(0), channels, count}, epsilon, v.Out(l, 0), v.Out(l, 1), v.Out(l, 2), l.stream);
  });
}

template <typename T>
void ApplySums(const Slices& s, double epsilon, double count, const FloatVectors& v, const Launch& l) {
  const ChannelLines<Arithmetic<T>> lines{ChannelNumbers<Arithmetic<T>>(s, l), s.slices};
  const ChannelStatistics batch{l.In<double>(3), s.slices, count};
  const FloatOperand scale = v.In(l, 1), bias = v.In(l, 2);
  ForEachElement(
      s.slices, l.stream,
      GRADLOOM_ON_DEVICE(int64_t c) { lines.Set(c, batch.Mean(c), scale[c] / ::sqrt(batch.Variance(c) + epsilon), bias[c]); });
  Apply(s, lines, l.In<T>(0), l.Out<T>(0), l.stream);
}

std::unique_ptr<Kernel> MakeApply(const KernelCall& call, const KernelSite&) {
  const Slices s = Slices::OfChannels(call.inputs[0]);
  const double epsilon = call.attributes.Float("epsilon", 1e-5), count = call.attributes.Float("count", 1);
  const FloatVectors v(call);
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { ApplySums<T>(s, epsilon, count, v, l); });
  });
}

// Sums [2, C] in double: of dy and of dy (x - mean).
template <typename T>
void GradSums(const Slices& s, const FloatVectors& v, const Launch& l) {
  double* const sums = l.Out<double>(0);
  const auto finish = GRADLOOM_ON_DEVICE(int64_t c, double sum, double product) {
    sums[c] = sum;
    sums[s.slices + c] = product;
  };
  SumGradients(s, StoredGradient<T>{l.In<T>(0)}, l.In<T>(1), v.In(l, 2), Records(l), l.stream, finish);
}

std::unique_ptr<Kernel> MakeGradSums(const KernelCall& call, const KernelSite&) {
  const Slices s = Slices::OfChannels(call.inputs[1]);
  const FloatVectors v(call);
  return WithFloating(call.inputs[1].dtype,
                      [&]<typename T>(std::type_identity<T>) { return MakeKernel([=](const Launch& l) { GradSums<T>(s, v, l); }); });
}

template <typename T>
void ApplyGradSums(const Slices& s, double count, const FloatVectors& v, const Launch& l) {
  const ChannelSlopes<Arithmetic<T>> slopes{ChannelNumbers<Arithmetic<T>>(s, l), s.slices};
  const FloatOperand scale = v.In(l, 2), means = v.In(l, 3), inv_stds = v.In(l, 4);
  const double* const sums = l.In<double>(5);
  ForEachElement(
      s.slices, l.stream,
      GRADLOOM_ON_DEVICE(int64_t c) { slopes.Set(c, sums[c], sums[s.slices + c], count, scale[c], means[c], inv_stds[c]); });
  ApplyGradient(s, slopes, l.In<T>(0), l.In<T>(1), l.Out<T>(0), l.stream);
}

std::unique_ptr<Kernel> MakeGradApply(const KernelCall& call, const KernelSite&) {
  const Slices s = Slices::OfChannels(call.inputs[1]);
  const double count = call.attributes.Float("count", 1);
  const FloatVectors v(call);
  return WithFloating(call.inputs[1].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { ApplyGradSums<T>(s, count, v, l); });
  });
}

void GradParameters(int64_t channels, const double* sums, FloatOperand inv_stds, FloatResults dscale, FloatResults dbias,
                    cudaStream_t stream) {
  ForEachElement(
      channels, stream, GRADLOOM_ON_DEVICE(int64_t c) {
        dscale.Set(c, sums[channels + c] * inv_stds[c]);
        dbias.Set(c, sums[c]);
      });
}

std::unique_ptr<Kernel> MakeGradParameters(const KernelCall& call, const KernelSite&) {
  const int64_t channels = call.inputs[1].shape.elements();
  const FloatVectors v(call);
  return MakeKernel([=](const Launch& l) { GradParameters(channels, l.In<double>(0), v.In(l, 1), v.Out(l, 0), v.Out(l, 1), l.stream); });
}

constexpr CudaKernel kBatchNormKernels[] = {
    {"cuda.BatchNormalization", MakeBatchNormalization},
    {"cuda.gradloom.BatchNormTrain", MakeTrain},
    {"cuda.gradloom.BatchNormLine", MakeLine},
    {"cuda.gradloom.BatchNormTrainGrad", MakeTrainGrad},
    {"cuda.gradloom.MaskedBatchNormGrad", MakeMaskedGrad},
    {"cuda.gradloom.BatchNormSums", MakeSums},
    {"cuda.gradloom.BatchNormStatistics", MakeStatistics},
    {"cuda.gradloom.BatchNormApply", MakeApply},
    {"cuda.gradloom.BatchNormGradSums", MakeGradSums},
    {"cuda.gradloom.BatchNormGradApply", MakeGradApply},
    {"cuda.gradloom.BatchNormGradParameters", MakeGradParameters},
};

}  // namespace

std::span<const CudaKernel> BatchNormKernels() { return kBatchNormKernels; }

}  // namespace gradloom::cuda
