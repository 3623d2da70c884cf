// BatchNormalization, LayerNormalization, their gradients, Softmax, LogSoftmax and Dropout. Statistics are accumulated in double.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/catalog/batch_slice.h"
#include "kernels/catalog/operands.h"
#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"
#include "kernels/reference/wide.h"
#include "runtime/base/philox.h"

namespace gradloom {
namespace {

// A tensor [N, C, ...] as images, channels and points.
struct Channels {
  int64_t images = 0, channels = 0, points = 0;

  explicit Channels(const Shape& shape) : images(shape[0]), channels(shape[1]) {
    points = images * channels == 0 ? 0 : shape.elements() / (images * channels);
  }

  // Calls f(element) for every element of a channel.
  template <typename F>
  void ForEach(int64_t channel, F f) const {
    for (int64_t n = 0; n < images; ++n) {
      const int64_t start = (n * channels + channel) * points;
      for (int64_t i = 0; i < points; ++i) f(start + i);
    }
  }
};

// Null if the output is not wanted.
template <typename T>
T* Out(const KernelCall& call, void* const* outputs, size_t i) {
  return HasOutput(call, i) ? static_cast<T*>(outputs[i]) : nullptr;
}

template <typename T>
void Moments(const Channels& shape, const T* x, int64_t channel, double& mean, double& variance) {
  const double count = static_cast<double>(shape.images * shape.points);
  double sum = 0, squares = 0;
  shape.ForEach(channel, [&](int64_t i) { sum += static_cast<double>(x[i]); });
  mean = sum / count;
  shape.ForEach(channel, [&](int64_t i) { squares += (static_cast<double>(x[i]) - mean) * (static_cast<double>(x[i]) - mean); });
  variance = squares / count;
}

void RunBatchNormTrain(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Channels shape(call.inputs[0].shape);
  const double epsilon = call.attributes.Float("epsilon", 1e-5);
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const T* x = In<T>(inputs, 0);
    T* y = Out<T>(call, outputs, 0);
    T *means = Out<T>(call, outputs, 1), *inv_stds = Out<T>(call, outputs, 2), *variances = Out<T>(call, outputs, 3);
    for (int64_t c = 0; c < shape.channels; ++c) {
      double mean, variance;
      Moments(shape, x, c, mean, variance);
      const double inv_std = 1 / std::sqrt(variance + epsilon), scale = static_cast<double>(In<T>(inputs, 1)[c]) * inv_std;
      const double bias = static_cast<double>(In<T>(inputs, 2)[c]);
      shape.ForEach(c, [&](int64_t i) { y[i] = static_cast<T>((static_cast<double>(x[i]) - mean) * scale + bias); });
      if (means != nullptr) means[c] = static_cast<T>(mean);
      if (inv_stds != nullptr) inv_stds[c] = static_cast<T>(inv_std);
      if (variances != nullptr) variances[c] = static_cast<T>(variance);
    }
  });
}

void RunBatchNormLine(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Channels shape(call.inputs[0].shape);
  const double epsilon = call.attributes.Float("epsilon", 1e-5);
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t c = 0; c < shape.channels; ++c) {
      double mean, variance;
      Moments(shape, In<T>(inputs, 0), c, mean, variance);
      const double inv_std = 1 / std::sqrt(variance + epsilon), factor = static_cast<double>(In<T>(inputs, 1)[c]) * inv_std;
      // The offset includes the part of the mean that is lost by rounding.
      const double lost = static_cast<double>(static_cast<T>(mean)) - mean;
      const double results[] = {mean, inv_std, variance, mean, factor, static_cast<double>(In<T>(inputs, 2)[c]) + lost * factor};
      for (size_t i = 0; i < std::size(results); ++i) {
        if (T* out = Out<T>(call, outputs, i)) out[c] = static_cast<T>(results[i]);
      }
    }
  });
}

// dx = scale * inv_std * (dy - mean(dy) - xhat * mean(dy * xhat)), xhat = (x - mean) * inv_std
void RunBatchNormTrainGrad(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Channels shape(call.inputs[1].shape);
  const double count = static_cast<double>(shape.images * shape.points);
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const T *dy = In<T>(inputs, 0), *x = In<T>(inputs, 1);
    T *dx = Out<T>(call, outputs, 0), *dscale = Out<T>(call, outputs, 1), *dbias = Out<T>(call, outputs, 2);
    for (int64_t c = 0; c < shape.channels; ++c) {
      const double mean = static_cast<double>(In<T>(inputs, 3)[c]), inv_std = static_cast<double>(In<T>(inputs, 4)[c]);
      double sum = 0, product = 0;
      const auto normalized = [&](int64_t i) { return (static_cast<double>(x[i]) - mean) * inv_std; };
      shape.ForEach(c, [&](int64_t i) {
        sum += static_cast<double>(dy[i]);
        product += static_cast<double>(dy[i]) * normalized(i);
      });
      if (dscale != nullptr) dscale[c] = static_cast<T>(product);
      if (dbias != nullptr) dbias[c] = static_cast<T>(sum);
      if (dx == nullptr) continue;
      const double slope = static_cast<double>(In<T>(inputs, 2)[c]) * inv_std;
      shape.ForEach(c, [&](int64_t i) {
        dx[i] = static_cast<T>(slope * (static_cast<double>(dy[i]) - sum / count - normalized(i) * product / count));
      });
    }
  });
}

// The gradient g that arrives behind a mask, in the type of x; y is the operand, or a linear function of x for each channel.
template <typename T>
Tensor MaskedGradient(const KernelCall& call, const void* const* inputs) {
  using R = std::conditional_t<std::is_same_v<T, double>, double, float>;
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();  // compares false with everything
  const double low = call.attributes.Float("low", kNone), high = call.attributes.Float("high", kNone);
  const Channels shape(call.inputs[3].shape);
  const T *dy = In<T>(inputs, 0), *more = Has(call.inputs, 1) ? In<T>(inputs, 1) : nullptr, *x = In<T>(inputs, 3);
  const T* const y = Has(call.inputs, 2) ? In<T>(inputs, 2) : nullptr;
  const auto number = [&](size_t input, int64_t c) {
    return static_cast<R>(ElementAsDouble({call.inputs[input].dtype, call.inputs[input].shape, inputs[input]}, c));
  };
  Tensor g(call.inputs[3].dtype, call.inputs[3].shape);
  for (int64_t c = 0; c < shape.channels; ++c) {
    const R mean = number(5, c), factor = y == nullptr ? number(7, c) : R(0), offset = y == nullptr ? number(8, c) : R(0);
    shape.ForEach(c, [&](int64_t i) {
      const T of_x = static_cast<T>((static_cast<R>(x[i]) - mean) * factor + offset);
      const double value = static_cast<double>(static_cast<R>(y == nullptr ? of_x : y[i]));
      const bool hidden = value <= low || value >= high;
      const T sum = more == nullptr ? dy[i] : static_cast<T>(static_cast<R>(dy[i]) + static_cast<R>(more[i]));
      g.as<T>()[static_cast<size_t>(i)] = hidden ? static_cast<T>(R(0)) : sum;
    });
  }
  return g;
}

void RunMaskedBatchNormGrad(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Tensor g = WithFloating(call.inputs[3].dtype, [&]<typename T>(std::type_identity<T>) { return MaskedGradient<T>(call, inputs); });
  KernelCall plain = call;
  plain.inputs = {call.inputs[3], call.inputs[3], call.inputs[4], call.inputs[5], call.inputs[6]};
  plain.outputs.resize(3);
  const void* const operands[] = {g.data(), inputs[3], inputs[4], inputs[5], inputs[6]};
  Wide<RunBatchNormTrainGrad>(plain, operands, outputs);
  if (Has(call.outputs, 3)) std::memcpy(outputs[3], g.data(), static_cast<size_t>(g.bytes()));
}

// Sums [2, C] in double: of x and of its squares.
void RunBatchNormSums(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Channels shape(call.inputs[0].shape);
  double* sums = Out<double>(call, outputs, 0);
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const T* x = In<T>(inputs, 0);
    for (int64_t c = 0; c < shape.channels; ++c) {
      double sum = 0, squares = 0;
      shape.ForEach(c, [&](int64_t i) {
        const double value = static_cast<double>(x[i]);
        sum += value;
        squares += value * value;
      });
      sums[c] = sum;
      sums[shape.channels + c] = squares;
    }
  });
}

// The mean and the variance of a channel, from its sums.
std::pair<double, double> MomentsOf(const double* sums, int64_t channels, int64_t c, double count) {
  const double mean = sums[c] / count;
  return {mean, std::max(0.0, sums[channels + c] / count - mean * mean)};
}

void RunBatchNormStatistics(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const double epsilon = call.attributes.Float("epsilon", 1e-5), count = call.attributes.Float("count", 1);
  const double* sums = In<double>(inputs, 0);
  const int64_t channels = call.inputs[1].shape.elements();
  WithFloating(call.inputs[1].dtype, [&]<typename T>(std::type_identity<T>) {
    T *means = Out<T>(call, outputs, 0), *inv_stds = Out<T>(call, outputs, 1), *variances = Out<T>(call, outputs, 2);
    for (int64_t c = 0; c < channels; ++c) {
      const auto [mean, variance] = MomentsOf(sums, channels, c, count);
      if (means != nullptr) means[c] = static_cast<T>(mean);
      if (inv_stds != nullptr) inv_stds[c] = static_cast<T>(1 / std::sqrt(variance + epsilon));
      if (variances != nullptr) variances[c] = static_cast<T>(variance);
    }
  });
}

void RunBatchNormApply(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Channels shape(call.inputs[0].shape);
  const double epsilon = call.attributes.Float("epsilon", 1e-5), count = call.attributes.Float("count", 1);
  const double* sums = In<double>(inputs, 3);
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const T* x = In<T>(inputs, 0);
    T* y = Out<T>(call, outputs, 0);
    for (int64_t c = 0; c < shape.channels; ++c) {
      const auto [mean, variance] = MomentsOf(sums, shape.channels, c, count);
      const double scale = static_cast<double>(In<T>(inputs, 1)[c]) / std::sqrt(variance + epsilon);
      const double bias = static_cast<double>(In<T>(inputs, 2)[c]), middle = mean;
      shape.ForEach(c, [&](int64_t i) { y[i] = static_cast<T>((static_cast<double>(x[i]) - middle) * scale + bias); });
    }
  });
}

// Sums [2, C] in double: of dy and of dy (x - mean).
void RunBatchNormGradSums(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Channels shape(call.inputs[1].shape);
  double* sums = Out<double>(call, outputs, 0);
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const T *dy = In<T>(inputs, 0), *x = In<T>(inputs, 1);
    for (int64_t c = 0; c < shape.channels; ++c) {
      const double mean = static_cast<double>(In<T>(inputs, 2)[c]);
      double sum = 0, product = 0;
      shape.ForEach(c, [&](int64_t i) {
        sum += static_cast<double>(dy[i]);
        product += static_cast<double>(dy[i]) * (static_cast<double>(x[i]) - mean);
      });
      sums[c] = sum;
      sums[shape.channels + c] = product;
    }
  });
}

void RunBatchNormGradApply(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Channels shape(call.inputs[1].shape);
  const double count = call.attributes.Float("count", 1);
  const double* sums = In<double>(inputs, 5);
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const T *dy = In<T>(inputs, 0), *x = In<T>(inputs, 1);
    T* dx = Out<T>(call, outputs, 0);
    for (int64_t c = 0; c < shape.channels; ++c) {
      const double mean = static_cast<double>(In<T>(inputs, 3)[c]), inv_std = static_cast<double>(In<T>(inputs, 4)[c]);
      const double sum = sums[c], product = sums[shape.channels + c] * inv_std;
      const double slope = static_cast<double>(In<T>(inputs, 2)[c]) * inv_std;
      shape.ForEach(c, [&](int64_t i) {
        const double normalized = (static_cast<double>(x[i]) - mean) * inv_std;
        dx[i] = static_cast<T>(slope * (static_cast<double>(dy[i]) - sum / count - normalized * product / count));
      });
    }
  });
}

void RunBatchNormGradParameters(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const double* sums = In<double>(inputs, 0);
  const int64_t channels = call.inputs[1].shape.elements();
  WithFloating(call.inputs[1].dtype, [&]<typename T>(std::type_identity<T>) {
    T *dscale = Out<T>(call, outputs, 0), *dbias = Out<T>(call, outputs, 1);
    for (int64_t c = 0; c < channels; ++c) {
      if (dscale != nullptr) dscale[c] = static_cast<T>(sums[channels + c] * static_cast<double>(In<T>(inputs, 1)[c]));
      if (dbias != nullptr) dbias[c] = static_cast<T>(sums[c]);
    }
  });
}

// ONNX's operator in both modes. Updates running statistics by ONNX's rule, with the biased variance.
void RunBatchNormalization(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Channels shape(call.inputs[0].shape);
  const double epsilon = call.attributes.Float("epsilon", 1e-5), momentum = call.attributes.Float("momentum", 0.9);
  const bool training = call.attributes.Int("training_mode", 0) == 1;
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const T* x = In<T>(inputs, 0);
    T *y = Out<T>(call, outputs, 0), *next_mean = Out<T>(call, outputs, 1), *next_variance = Out<T>(call, outputs, 2);
    for (int64_t c = 0; c < shape.channels; ++c) {
      const double running_mean = ElementAsDouble({call.inputs[3].dtype, call.inputs[3].shape, inputs[3]}, c);
      const double running_variance = ElementAsDouble({call.inputs[4].dtype, call.inputs[4].shape, inputs[4]}, c);
      double mean = running_mean, variance = running_variance;
      if (training) Moments(shape, x, c, mean, variance);
      const double scale = ElementAsDouble({call.inputs[1].dtype, call.inputs[1].shape, inputs[1]}, c) / std::sqrt(variance + epsilon);
      const double bias = ElementAsDouble({call.inputs[2].dtype, call.inputs[2].shape, inputs[2]}, c);
      shape.ForEach(c, [&](int64_t i) { y[i] = static_cast<T>((static_cast<double>(x[i]) - mean) * scale + bias); });
      if (next_mean != nullptr) next_mean[c] = static_cast<T>(running_mean * momentum + mean * (1 - momentum));
      if (next_variance != nullptr) next_variance[c] = static_cast<T>(running_variance * momentum + variance * (1 - momentum));
    }
  });
}

struct Rows {
  int64_t rows = 1, width = 1;
  // All dimensions from `axis` on are normalized together.
  Rows(const Shape& shape, int64_t axis) {
    const int first = NormalAxis(axis, shape.rank()).value_or(0);
    for (int i = 0; i < shape.rank(); ++i) (i < first ? rows : width) *= shape[i];
  }
};

template <typename T>
void RowMoments(const T* x, int64_t width, double epsilon, double& mean, double& inv_std) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < width; ++i) sum += static_cast<double>(x[i]);
  mean = sum / static_cast<double>(width);
  for (int64_t i = 0; i < width; ++i) squares += (static_cast<double>(x[i]) - mean) * (static_cast<double>(x[i]) - mean);
  inv_std = 1 / std::sqrt(squares / static_cast<double>(width) + epsilon);
}

// For each element of a row, the element of a scale or bias, which may be broadcast over the normalized dimensions.
std::vector<int64_t> BroadcastIndex(const Shape& normalized, const Shape& operand) {
  std::vector<int64_t> index(static_cast<size_t>(normalized.elements()));
  const std::vector<int64_t> strides = operand.strides();
  for (size_t i = 0; i < index.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), at = 0;
    for (int axis = normalized.rank(); axis-- > 0;) {
      const int64_t coordinate = rest % normalized[axis];
      rest /= normalized[axis];
      const int own = axis - (normalized.rank() - operand.rank());
      if (own >= 0 && operand[own] != 1) at += coordinate * strides[static_cast<size_t>(own)];
    }
    index[i] = at;
  }
  return index;
}

Shape Normalized(const Shape& x, int64_t axis) {
  return Shape(std::vector<int64_t>(x.begin() + NormalAxis(axis, x.rank()).value_or(0), x.end()));
}

// Mean and deviation have their own type (`stash_type`).
void StoreStatistic(const KernelCall& call, void* const* outputs, size_t i, int64_t row, double value) {
  if (!Has(call.outputs, i)) return;
  WithFloating(call.outputs[i].dtype, [&]<typename S>(std::type_identity<S>) { Out<S>(call, outputs, i)[row] = static_cast<S>(value); });
}

void RunLayerNormalization(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Shape& shape = call.inputs[0].shape;
  const int64_t axis = call.attributes.Int("axis", -1);
  const double epsilon = call.attributes.Float("epsilon", 1e-5);
  const Rows rows(shape, axis);
  const bool has_bias = call.inputs.size() > 2 && call.inputs[2].present();
  const auto scale_at = BroadcastIndex(Normalized(shape, axis), call.inputs[1].shape);
  const auto bias_at = has_bias ? BroadcastIndex(Normalized(shape, axis), call.inputs[2].shape) : scale_at;
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const T* bias = has_bias ? In<T>(inputs, 2) : nullptr;
    for (int64_t r = 0; r < rows.rows; ++r) {
      const T* x = In<T>(inputs, 0) + r * rows.width;
      T* y = Out<T>(call, outputs, 0) + r * rows.width;
      double mean, inv_std;
      RowMoments(x, rows.width, epsilon, mean, inv_std);
      for (int64_t i = 0; i < rows.width; ++i) {
        const size_t k = static_cast<size_t>(i);
        const double value = (static_cast<double>(x[i]) - mean) * inv_std * static_cast<double>(In<T>(inputs, 1)[scale_at[k]]);
        y[i] = static_cast<T>(value + (bias == nullptr ? 0.0 : static_cast<double>(bias[bias_at[k]])));
      }
      StoreStatistic(call, outputs, 1, r, mean);
      StoreStatistic(call, outputs, 2, r, inv_std);
    }
  });
}

void RunLayerNormGrad(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Shape& shape = call.inputs[1].shape;
  const int64_t axis = call.attributes.Int("axis", -1);
  const double epsilon = call.attributes.Float("epsilon", 1e-5);
  const Rows rows(shape, axis);
  const auto scale_at = BroadcastIndex(Normalized(shape, axis), call.inputs[2].shape);
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    std::vector<double> dscale(static_cast<size_t>(rows.width)), dbias(static_cast<size_t>(rows.width));
    for (int64_t r = 0; r < rows.rows; ++r) {
      const T *dy = In<T>(inputs, 0) + r * rows.width, *x = In<T>(inputs, 1) + r * rows.width;
      double mean, inv_std, sum = 0, product = 0;
      RowMoments(x, rows.width, epsilon, mean, inv_std);
      const auto normalized = [&](int64_t i) { return (static_cast<double>(x[i]) - mean) * inv_std; };
      const auto scaled = [&](int64_t i) {
        return static_cast<double>(dy[i]) * static_cast<double>(In<T>(inputs, 2)[scale_at[static_cast<size_t>(i)]]);
      };
      for (int64_t i = 0; i < rows.width; ++i) {
        dscale[static_cast<size_t>(i)] += static_cast<double>(dy[i]) * normalized(i);
        dbias[static_cast<size_t>(i)] += static_cast<double>(dy[i]);
        sum += scaled(i);
        product += scaled(i) * normalized(i);
      }
      T* dx = Out<T>(call, outputs, 0);
      if (dx == nullptr) continue;
      const double width = static_cast<double>(rows.width);
      for (int64_t i = 0; i < rows.width; ++i) {
        dx[r * rows.width + i] = static_cast<T>(inv_std * (scaled(i) - sum / width - normalized(i) * product / width));
      }
    }
    for (size_t i = 0; i < dscale.size(); ++i) {
      if (T* out = Out<T>(call, outputs, 1)) out[i] = static_cast<T>(dscale[i]);
      if (T* out = Out<T>(call, outputs, 2)) out[i] = static_cast<T>(dbias[i]);
    }
  });
}

// The type of the gradient may be narrower than that of x.
void RunLayerNormGradOfAny(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  if (call.inputs[0].dtype == call.inputs[1].dtype) return RunLayerNormGrad(call, inputs, outputs);
  RunWide(call, inputs, outputs, RunLayerNormGrad);
}

// In float32, with both outputs; the caller rounds the second one.
void RunLayerNormTwice(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  Tensor y(DType::kFloat32, call.inputs[0].shape);
  KernelCall plain = call;
  plain.outputs = {call.outputs[1]};
  void* const made[] = {y.data()};
  RunLayerNormalization(plain, inputs, made);
  for (size_t i : {0, 1}) {
    if (Has(call.outputs, i)) std::memcpy(outputs[i], y.data(), static_cast<size_t>(y.bytes()));
  }
}

void RunLayerNormCast(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  RunWide(call, inputs, outputs, RunLayerNormTwice);
}

// Adds the elements of `more`, of the type T.
template <typename T>
void AddElements(const void* more, Tensor& to) {
  const T* from = static_cast<const T*>(more);
  for (T& element : to.as<T>()) element = static_cast<T>(static_cast<double>(element) + static_cast<double>(*from++));
}

// The position of inner_scale among the operands of gradloom.SumLayerNorm; inner_bias follows.
constexpr size_t kInnerScale = 4;

// Operands and results have the type of the first operand; the caller rounds.
void RunSumLayerNorm(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    Tensor sum(call.inputs[0].dtype, call.inputs[0].shape), y(call.inputs[0].dtype, call.inputs[0].shape);
    // Scale and bias are operands `scale` and the next one.
    const auto normalize = [&](const void* x, size_t scale, double epsilon) {
      KernelCall plain = call;
      plain.attributes.set("epsilon", epsilon);
      plain.inputs = {call.inputs[0], call.inputs[scale], Has(call.inputs, scale + 1) ? call.inputs[scale + 1] : OperandType()};
      plain.outputs = {call.inputs[0]};
      const void* const operands[] = {x, inputs[scale], Has(call.inputs, scale + 1) ? inputs[scale + 1] : nullptr};
      void* const made[] = {y.data()};
      RunLayerNormalization(plain, operands, made);
    };
    const bool inner = Has(call.inputs, kInnerScale);
    if (inner) normalize(inputs[0], kInnerScale, call.attributes.Float("inner_epsilon", 1e-5));
    AddElements<T>(inner ? y.data() : inputs[0], sum);
    AddElements<T>(inputs[1], sum);
    normalize(sum.data(), 2, call.attributes.Float("epsilon", 1e-5));
    const Tensor* const results[] = {&sum, &y, &y};
    for (size_t k = 0; k < std::size(results); ++k) {
      if (Has(call.outputs, k)) std::memcpy(outputs[k], results[k]->data(), static_cast<size_t>(y.bytes()));
    }
  });
}

void RunSumLayerNormGrad(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    Tensor dy(call.inputs[0].dtype, call.inputs[0].shape), dx(call.inputs[0].dtype, call.inputs[0].shape);
    for (size_t i : {0, 1}) {
      if (Has(call.inputs, i)) AddElements<T>(inputs[i], dy);
    }
    KernelCall plain = call;
    plain.inputs = {call.inputs[0], call.inputs[2], call.inputs[3]};
    plain.outputs.resize(std::min<size_t>(plain.outputs.size(), 3));
    plain.outputs[0] = call.inputs[0];
    const void* const operands[] = {dy.data(), inputs[2], inputs[3]};
    void* const made[] = {dx.data(), Has(call.outputs, 1) ? outputs[1] : nullptr, Has(call.outputs, 2) ? outputs[2] : nullptr};
    RunLayerNormGrad(plain, operands, made);
    if (Has(call.inputs, 4)) AddElements<T>(inputs[4], dx);
    for (size_t k : {0, 3}) {
      if (Has(call.outputs, k)) std::memcpy(outputs[k], dx.data(), static_cast<size_t>(dx.bytes()));
    }
  });
}

// Calls f(first element, stride, extent) for each line along the axis.
template <typename F>
void ForEachLine(const Shape& shape, int64_t axis, F f) {
  const int a = NormalAxis(axis, shape.rank()).value_or(0);
  if (shape.rank() == 0) return f(int64_t{0}, int64_t{1}, int64_t{1});
  int64_t inner = 1, outer = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i < a) outer *= shape[i];
    if (i > a) inner *= shape[i];
  }
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) f(o * shape[a] * inner + i, inner, shape[a]);
  }
}

template <bool kLog>
void RunSoftmax(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const T* x = In<T>(inputs, 0);
    T* y = Out<T>(call, outputs, 0);
    ForEachLine(call.inputs[0].shape, call.attributes.Int("axis", -1), [&](int64_t start, int64_t stride, int64_t n) {
      double largest = -INFINITY, sum = 0;
      for (int64_t i = 0; i < n; ++i) largest = std::max(largest, static_cast<double>(x[start + i * stride]));
      for (int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(x[start + i * stride]) - largest);
      for (int64_t i = 0; i < n; ++i) {
        const double shifted = static_cast<double>(x[start + i * stride]) - largest;
        y[start + i * stride] = static_cast<T>(kLog ? shifted - std::log(sum) : std::exp(shifted) / sum);
      }
    });
  });
}

void RunDropout(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const double ratio = call.attributes.Float("ratio", 0);
  const int64_t n = call.inputs[0].shape.elements();
  const BatchSlice batch_slice = BatchSlice::Of(call, Has(call.inputs, 3) ? *In<int64_t>(inputs, 3) : 0);
  const PhiloxKey key = NodeKey(static_cast<uint64_t>(*In<int64_t>(inputs, 1)), static_cast<uint64_t>(*In<int64_t>(inputs, 2)),
                                static_cast<uint64_t>(call.attributes.Int("origin", 0)));
  bool* mask = Out<bool>(call, outputs, 1);
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const double scale = 1 / (1 - ratio);
    for (int64_t i = 0; i < n; ++i) {
      const bool kept = UniformFloat(ElementBits(batch_slice(i), key)) >= static_cast<float>(ratio);
      Out<T>(call, outputs, 0)[i] = kept ? static_cast<T>(static_cast<double>(In<T>(inputs, 0)[i]) * scale) : T(0);
      if (mask != nullptr) mask[i] = kept;
    }
  });
}

constexpr ReferenceKernel kKernels[] = {
    {"BatchNormalization", "", RunBatchNormalization},
    {"BatchNormTrain", "gradloom", RunBatchNormTrain},
    {"BatchNormLine", "gradloom", RunBatchNormLine},
    {"BatchNormSums", "gradloom", RunBatchNormSums},
    {"BatchNormApply", "gradloom", RunBatchNormApply},
    {"BatchNormStatistics", "gradloom", RunBatchNormStatistics},
    {"BatchNormGradParameters", "gradloom", RunBatchNormGradParameters},
    {"BatchNormGradSums", "gradloom", RunBatchNormGradSums},
    {"BatchNormGradApply", "gradloom", RunBatchNormGradApply},
    {"BatchNormTrainGrad", "gradloom", RunBatchNormTrainGrad},
    {"MaskedBatchNormGrad", "gradloom", RunMaskedBatchNormGrad},
    {"LayerNormalization", "", RunLayerNormalization},
    {"LayerNormGrad", "gradloom", RunLayerNormGradOfAny},
    {"LayerNormCast", "gradloom", RunLayerNormCast},
    {"SumLayerNorm", "gradloom", Wide<RunSumLayerNorm>},
    {"SumLayerNormGrad", "gradloom", Wide<RunSumLayerNormGrad>},
    {"Softmax", "", RunSoftmax<false>},
    {"LogSoftmax", "", RunSoftmax<true>},
    {"Dropout", "gradloom", RunDropout},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceNormalization() { return kKernels; }

}  // namespace gradloom
