// Normalization over groups of channels, by root mean squares, over neighboring channels, over axes, and by norms. Sums are accumulated in
// double.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"

namespace gradloom {
namespace {

// A tensor [N, C, ...] with its channels normalized in `groups` groups of consecutive channels.
struct Groups {
  int64_t images, channels, groups, per_group, points;

  Groups(const Shape& shape, int64_t number)
      : images(shape[0]),
        channels(shape[1]),
        groups(number),
        per_group(groups == 0 ? 0 : channels / groups),
        points(Product(shape, 2, shape.rank())) {}

  int64_t size() const { return per_group * points; }
};

struct Moments {
  double mean = 0, inv_std = 0;
};

template <typename T>
Moments MomentsOf(const T* x, int64_t n, double epsilon) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]);
  const double mean = sum / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) squares += (static_cast<double>(x[i]) - mean) * (static_cast<double>(x[i]) - mean);
  return {mean, 1 / std::sqrt(squares / static_cast<double>(n) + epsilon)};
}

void NormalizeGroups(const KernelCall& call, const void* const* inputs, void* const* outputs, int64_t number) {
  const Groups shape(call.inputs[0].shape, number);
  const double epsilon = call.attributes.Float("epsilon", 1e-5);
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const T *scale = In<T>(inputs, 1), *bias = In<T>(inputs, 2);
    for (int64_t g = 0; g < shape.images * shape.groups; ++g) {
      const T* x = In<T>(inputs, 0) + g * shape.size();
      T* y = Out<T>(outputs, 0) + g * shape.size();
      const Moments m = MomentsOf(x, shape.size(), epsilon);
      for (int64_t i = 0; i < shape.size(); ++i) {
        const int64_t c = g % shape.groups * shape.per_group + i / shape.points;
        y[i] =
            static_cast<T>((static_cast<double>(x[i]) - m.mean) * m.inv_std * static_cast<double>(scale[c]) + static_cast<double>(bias[c]));
      }
    }
  });
}

void InstanceNormalization(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  NormalizeGroups(call, inputs, outputs, call.inputs[0].shape[1]);
}

void GroupNormalization(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  NormalizeGroups(call, inputs, outputs, call.attributes.Int("num_groups", 1));
}

// With h = (x - mean) * inv_std and d = dy * scale:
//   dx = inv_std * (d - mean(d) - h * mean(d * h)), dscale = sum(dy * h), dbias = sum(dy).
void GroupNormGrad(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Groups shape(call.inputs[1].shape, call.attributes.Int("num_groups", 1));
  const double epsilon = call.attributes.Float("epsilon", 1e-5), size = static_cast<double>(shape.size());
  WithFloating(call.inputs[1].dtype, [&]<typename T>(std::type_identity<T>) {
    const T* scale = In<T>(inputs, 2);
    std::vector<double> dscale(static_cast<size_t>(shape.channels)), dbias(static_cast<size_t>(shape.channels));
    for (int64_t g = 0; g < shape.images * shape.groups; ++g) {
      const T *dy = In<T>(inputs, 0) + g * shape.size(), *x = In<T>(inputs, 1) + g * shape.size();
      T* dx = Out<T>(outputs, 0) + g * shape.size();
      const Moments m = MomentsOf(x, shape.size(), epsilon);
      const auto channel = [&](int64_t i) { return g % shape.groups * shape.per_group + i / shape.points; };
      const auto normalized = [&](int64_t i) { return (static_cast<double>(x[i]) - m.mean) * m.inv_std; };
      const auto scaled = [&](int64_t i) { return static_cast<double>(dy[i]) * static_cast<double>(scale[channel(i)]); };
      double sum = 0, product = 0;
      for (int64_t i = 0; i < shape.size(); ++i) {
        sum += scaled(i);
        product += scaled(i) * normalized(i);
        dscale[static_cast<size_t>(channel(i))] += static_cast<double>(dy[i]) * normalized(i);
        dbias[static_cast<size_t>(channel(i))] += static_cast<double>(dy[i]);
      }
      for (int64_t i = 0; i < shape.size(); ++i) {
        dx[i] = static_cast<T>(m.inv_std * (scaled(i) - sum / size - normalized(i) * product / size));
      }
    }
    for (size_t c = 0; c < dscale.size(); ++c) {
      Out<T>(outputs, 1)[c] = static_cast<T>(dscale[c]);
      Out<T>(outputs, 2)[c] = static_cast<T>(dbias[c]);
    }
  });
}

// Rows over the dimensions from `axis` on, and the offset of the scale for each element of a row.
struct ScaledRows {
  int64_t rows, width;
  std::vector<int64_t> scale_at;

  ScaledRows(const KernelCall& call, const Shape& x, const Shape& scale) {
    const int axis = AxisOf(call, call.attributes.Int("axis", -1), x.rank());
    rows = Product(x, 0, axis);
    const Shape normalized(std::vector<int64_t>(x.begin() + axis, x.end()));
    width = normalized.elements();
    const Nest<1> nest(normalized, {BroadcastStrides(scale, normalized)});
    nest.ForEachRow([&](int64_t n, const auto& offsets, const auto& steps) {
      for (int64_t j = 0; j < n; ++j) scale_at.push_back(offsets[0] + j * steps[0]);
    });
  }
};

template <typename T>
double InverseRms(const T* x, int64_t n, double epsilon) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return 1 / std::sqrt(squares / static_cast<double>(n) + epsilon);
}

void RmsNormalization(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const ScaledRows shape(call, call.inputs[0].shape, call.inputs[1].shape);
  const double epsilon = call.attributes.Float("epsilon", 1e-5);
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t r = 0; r < shape.rows; ++r) {
      const T* x = In<T>(inputs, 0) + r * shape.width;
      const double inverse = InverseRms(x, shape.width, epsilon);
      for (int64_t i = 0; i < shape.width; ++i) {
        const double scale = static_cast<double>(In<T>(inputs, 1)[shape.scale_at[static_cast<size_t>(i)]]);
        Out<T>(outputs, 0)[r * shape.width + i] = static_cast<T>(static_cast<double>(x[i]) * inverse * scale);
      }
    }
  });
}

// With h = x * inverse and d = dy * scale: dx = inverse * (d - h * mean(d * h)), dscale = sum(dy * h).
void RmsNormGrad(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const ScaledRows shape(call, call.inputs[1].shape, call.inputs[2].shape);
  const double epsilon = call.attributes.Float("epsilon", 1e-5);
  WithFloating(call.inputs[1].dtype, [&]<typename T>(std::type_identity<T>) {
    std::vector<double> dscale(static_cast<size_t>(shape.width));
    for (int64_t r = 0; r < shape.rows; ++r) {
      const T *dy = In<T>(inputs, 0) + r * shape.width, *x = In<T>(inputs, 1) + r * shape.width;
      T* dx = Out<T>(outputs, 0) + r * shape.width;
      const double inverse = InverseRms(x, shape.width, epsilon);
      const auto scaled = [&](int64_t i) {
        return static_cast<double>(dy[i]) * static_cast<double>(In<T>(inputs, 2)[shape.scale_at[static_cast<size_t>(i)]]);
      };
      double product = 0;
      for (int64_t i = 0; i < shape.width; ++i) {
        const double h = static_cast<double>(x[i]) * inverse;
        product += scaled(i) * h;
        dscale[static_cast<size_t>(i)] += static_cast<double>(dy[i]) * h;
      }
      const double mean = product / static_cast<double>(shape.width);
      for (int64_t i = 0; i < shape.width; ++i) dx[i] = static_cast<T>(inverse * (scaled(i) - static_cast<double>(x[i]) * inverse * mean));
    }
    for (size_t i = 0; i < dscale.size(); ++i) Out<T>(outputs, 1)[i] = static_cast<T>(dscale[i]);
  });
}

// Local response normalization: y = x * base^-beta, base = bias + alpha / size * sum of x^2 over the window of channels [c - floor((size -
// 1) / 2), c + ceil((size - 1) / 2)].
struct Response {
  double alpha, beta, bias;
  int64_t size, before, after;

  explicit Response(const Attributes& a)
      : alpha(a.Float("alpha", 9.9999997473787516e-05)), beta(a.Float("beta", 0.75)), bias(a.Float("bias", 1)), size(a.Int("size", 1)) {
    before = (size - 1) / 2;
    after = size - 1 - before;
  }

  // Sums f(j) over the window of channel c among n channels, or with `adjoint`, over the channels whose windows contain c.
  template <typename F>
  double Window(int64_t c, int64_t n, bool adjoint, F f) const {
    double sum = 0;
    const int64_t first = std::max<int64_t>(0, c - (adjoint ? after : before)), last = std::min(n - 1, c + (adjoint ? before : after));
    for (int64_t j = first; j <= last; ++j) sum += f(j);
    return sum;
  }
};

// Calls f(start, step) for each image and point, whose channels are `step` = `points` elements apart.
template <typename F>
void ForEachChannelVector(const Shape& shape, F f) {
  const int64_t points = Product(shape, 2, shape.rank());
  for (int64_t n = 0; n < shape[0]; ++n) {
    for (int64_t p = 0; p < points; ++p) f(n * shape[1] * points + p, points);
  }
}

// The base of every channel at one point.
template <typename T>
std::vector<double> Bases(const Response& r, const T* x, int64_t channels, int64_t step) {
  std::vector<double> bases(static_cast<size_t>(channels));
  for (int64_t c = 0; c < channels; ++c) {
    const double squares = r.Window(c, channels, false, [&](int64_t j) {
      const double value = static_cast<double>(x[j * step]);
      return value * value;
    });
    bases[static_cast<size_t>(c)] = r.bias + r.alpha / static_cast<double>(r.size) * squares;
  }
  return bases;
}

void LocalResponse(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Response r(call.attributes);
  const int64_t channels = call.inputs[0].shape[1];
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    ForEachChannelVector(call.inputs[0].shape, [&](int64_t start, int64_t step) {
      const T* x = In<T>(inputs, 0) + start;
      T* y = Out<T>(outputs, 0) + start;
      const std::vector<double> bases = Bases(r, x, channels, step);
      for (int64_t c = 0; c < channels; ++c) {
        y[c * step] = static_cast<T>(static_cast<double>(x[c * step]) * std::pow(bases[static_cast<size_t>(c)], -r.beta));
      }
    });
  });
}

// dx[i] = dy[i] base[i]^-beta - 2 alpha beta / size x[i] sum over j with i in the window of j of dy[j] x[j] base[j]^(-beta - 1).
void LrnGrad(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Response r(call.attributes);
  const int64_t channels = call.inputs[1].shape[1];
  const double factor = 2 * r.alpha * r.beta / static_cast<double>(r.size);
  WithFloating(call.inputs[1].dtype, [&]<typename T>(std::type_identity<T>) {
    ForEachChannelVector(call.inputs[1].shape, [&](int64_t start, int64_t step) {
      const T *dy = In<T>(inputs, 0) + start, *x = In<T>(inputs, 1) + start;
      T* dx = Out<T>(outputs, 0) + start;
      const std::vector<double> bases = Bases(r, x, channels, step);
      for (int64_t c = 0; c < channels; ++c) {
        const double across = r.Window(c, channels, true, [&](int64_t j) {
          return static_cast<double>(dy[j * step]) * static_cast<double>(x[j * step]) *
                 std::pow(bases[static_cast<size_t>(j)], -r.beta - 1);
        });
        const double own = static_cast<double>(dy[c * step]) * std::pow(bases[static_cast<size_t>(c)], -r.beta);
        dx[c * step] = static_cast<T>(own - factor * static_cast<double>(x[c * step]) * across);
      }
    });
  });
}

// y = (x - mean) / (deviation + 1e-9) over `axes`, with the deviation as the square root of E[x^2] - E[x]^2.
void MeanVariance(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Shape& shape = call.inputs[0].shape;
  Shape kept = shape;
  for (int64_t axis : call.attributes.Ints("axes", {0, 2, 3})) kept[AxisOf(call, axis, shape.rank())] = 1;
  const size_t lines = static_cast<size_t>(kept.elements());
  const double count = lines == 0 ? 1 : static_cast<double>(shape.elements()) / static_cast<double>(lines);
  const Nest<1> nest(shape, {BroadcastStrides(kept, shape)});
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const auto for_each = [&](auto f) {
      int64_t i = 0;
      nest.ForEachRow([&](int64_t n, const auto& offsets, const auto& steps) {
        for (int64_t j = 0; j < n; ++j, ++i) f(i, static_cast<size_t>(offsets[0] + j * steps[0]));
      });
    };
    std::vector<double> mean(lines), deviation(lines);
    for_each([&](int64_t i, size_t line) { mean[line] += static_cast<double>(In<T>(inputs, 0)[i]) / count; });
    for_each([&](int64_t i, size_t line) {
      const double centered = static_cast<double>(In<T>(inputs, 0)[i]) - mean[line];
      deviation[line] += centered * centered / count;
    });
    for_each([&](int64_t i, size_t line) {
      const double centered = static_cast<double>(In<T>(inputs, 0)[i]) - mean[line];
      Out<T>(outputs, 0)[i] = static_cast<T>(centered / (std::sqrt(deviation[line]) + 1e-9));
    });
  });
}

// Calls f(start, step, extent) for each line along attribute `axis`.
template <typename F>
void ForEachLine(const KernelCall& call, F f) {
  const Shape& shape = call.inputs[0].shape;
  const int axis = AxisOf(call, call.attributes.Int("axis", -1), shape.rank());
  const int64_t outer = Product(shape, 0, axis), inner = Product(shape, axis + 1, shape.rank());
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) f(o * shape[axis] * inner + i, inner, shape[axis]);
  }
}

// x / norm, or 0 if the norm is 0.
void LpNormalization(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const bool absolute = call.attributes.Int("p", 2) == 1;
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    ForEachLine(call, [&](int64_t start, int64_t step, int64_t n) {
      const T* x = In<T>(inputs, 0) + start;
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        const double value = static_cast<double>(x[i * step]);
        sum += absolute ? std::fabs(value) : value * value;
      }
      const double norm = absolute ? sum : std::sqrt(sum);
      for (int64_t i = 0; i < n; ++i) {
        Out<T>(outputs, 0)[start + i * step] = norm == 0 ? T(0) : static_cast<T>(static_cast<double>(x[i * step]) / norm);
      }
    });
  });
}

// 1 at the first maximum of each line, 0 elsewhere. NaN is the maximum, as for ArgMax.
void Hardmax(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    ForEachLine(call, [&](int64_t start, int64_t step, int64_t n) {
      const T* x = In<T>(inputs, 0) + start;
      int64_t largest = 0;
      for (int64_t i = 1; i < n; ++i) {
        const double value = static_cast<double>(x[i * step]), most = static_cast<double>(x[largest * step]);
        if (value > most || (value != value && most == most)) largest = i;
      }
      for (int64_t i = 0; i < n; ++i) Out<T>(outputs, 0)[start + i * step] = static_cast<T>(i == largest ? 1.0f : 0.0f);
    });
  });
}

constexpr ReferenceKernel kKernels[] = {
    {"InstanceNormalization", "", InstanceNormalization},
    {"GroupNormalization", "", GroupNormalization},
    {"GroupNormGrad", "gradloom", GroupNormGrad},
    {"RMSNormalization", "", RmsNormalization},
    {"RmsNormGrad", "gradloom", RmsNormGrad},
    {"LRN", "", LocalResponse},
    {"LrnGrad", "gradloom", LrnGrad},
    {"MeanVarianceNormalization", "", MeanVariance},
    {"LpNormalization", "", LpNormalization},
    {"Hardmax", "", Hardmax},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceNormalizationMore() { return kKernels; }

}  // namespace gradloom
