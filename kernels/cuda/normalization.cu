// LayerNormalization, RMSNormalization and their gradients, row by row.
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/moments.cuh"
#include "kernels/cuda/normalization.cuh"
#include "kernels/cuda/shared.cuh"

namespace gradloom::cuda {
namespace {

// Normalizes by mean and deviation, or if not kCentered, by the root mean square.
template <bool kCentered, typename R, typename Threads, typename At>
GRADLOOM_DEVICE Normalizer<R> RowNormalizer(const Threads& block, int64_t n, R epsilon, At at) {
  if constexpr (kCentered) return NormalizerOf(ShiftedMomentsOf<R>(block, n, at), static_cast<R>(n), epsilon);
  const R squares = SumOf<R>(block, n, [=](int64_t k) { return at(k) * at(k); });
  return {0, 0, R(1) / static_cast<R>(::sqrt(squares / static_cast<R>(n) + epsilon))};
}

// The outputs of a normalization; `rounded` is y in a 16-bit type. Null: not wanted.
template <typename S, typename H>
struct Normalized {
  S* y;
  H* rounded;
  FloatResults means, inv_stds;
};

// The output has the type of the scale. Scale and bias are read through `walk`, which repeats them where they are broadcast.
template <bool kCentered, typename T, typename S, typename H>
void Normalize(const Columns& rows, double epsilon, const OffsetCalculator<2>& offsets, bool has_bias, const Normalized<S, H>& to,
               const Launch& l) {
  using R = Arithmetic<T>;
  const T* const x = l.In<T>(0);
  const S *const scale = l.In<S>(1), *const bias = has_bias ? l.In<S>(2) : nullptr;
  ForEachRowOf(
      rows.rows, rows.columns, 1, l.stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t row) {
        const int64_t start = row * rows.columns;
        const Elements<T> from{x + start};
        const Normalizer<R> normalizer = RowNormalizer<kCentered>(block, rows.columns, static_cast<R>(epsilon), from);
        for (int64_t k = block.thread(); k < rows.columns; k += block.threads()) {
          const auto place = offsets(k);
          const R value = normalizer(from(k)) * static_cast<R>(scale[place.at[0]]);
          const R result = bias == nullptr ? value : value + static_cast<R>(bias[place.at[1]]);
          if (to.y != nullptr) to.y[start + k] = static_cast<S>(result);
          if (to.rounded != nullptr) to.rounded[start + k] = static_cast<H>(static_cast<float>(result));
        }
        if (block.thread() != 0) return;
        to.means.Set(row, static_cast<double>(normalizer.mean()));
        to.inv_stds.Set(row, static_cast<double>(normalizer.inv_std));
      });
}

// The strides, along a row, of an operand that broadcasts over the normalized axes.
std::vector<int64_t> AlongRow(const Shape& row, const OperandType& operand) {
  return operand.present() ? BroadcastStrides(operand.shape, row) : std::vector<int64_t>(static_cast<size_t>(row.rank()), 0);
}

Shape RowShape(const KernelCall& call, const Shape& x) {
  return Shape(std::vector<int64_t>(x.begin() + AxisOf(call, call.attributes.Int("axis", -1), x.rank()), x.end()));
}

// The scale and the bias of a normalization, along a row of x.
OffsetCalculator<2> ScaleAndBias(const KernelCall& call) {
  const Shape row = RowShape(call, call.inputs[0].shape);
  return OffsetCalculator<2>(row, {AlongRow(row, call.inputs[1]), AlongRow(row, Has(call.inputs, 2) ? call.inputs[2] : OperandType())});
}

// The launch-independent data of a row normalization.
struct NormalizedCall {
  Columns rows;
  double epsilon;
  OffsetCalculator<2> offsets;
  bool has_bias;

  explicit NormalizedCall(const KernelCall& call)
      : rows(NormalizedRows(call, call.inputs[0].shape)),
        epsilon(call.attributes.Float("epsilon", 1e-5)),
        offsets(ScaleAndBias(call)),
        has_bias(Has(call.inputs, 2)) {}
};

template <bool kCentered>
std::unique_ptr<Kernel> MakeNormalize(const KernelCall& call, const KernelSite&) {
  const NormalizedCall n(call);
  const FloatVectors v(call);
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const auto with = [&]<typename S>(std::type_identity<S>) {
      return MakeKernel([=](const Launch& l) {
        Normalize<kCentered, T>(n.rows, n.epsilon, n.offsets, n.has_bias,
                                Normalized<S, Half>{l.Out<S>(0), nullptr, v.Out(l, 1), v.Out(l, 2)}, l);
      });
    };
    if constexpr (kCentered)
      return with(std::type_identity<T>{});  // the scale of LayerNormalization has the type of x
    else
      return WithFloating(call.inputs[1].dtype, with);
  });
}

// Calls f(std::type_identity<H>{}) for a 16-bit type.
template <typename F>
std::unique_ptr<Kernel> WithHalf(DType dtype, const F& f) {
  return dtype == DType::kFloat16 ? f(std::type_identity<Half>{}) : f(std::type_identity<Bfloat16>{});
}

// LayerNormalization of float32 with an additional output in a 16-bit type.
std::unique_ptr<Kernel> MakeNormalizeAndCast(const KernelCall& call, const KernelSite&) {
  const NormalizedCall n(call);
  return WithHalf(call.outputs[1].dtype, [&]<typename H>(std::type_identity<H>) {
    return MakeKernel([=](const Launch& l) {
      Normalize<true, float>(n.rows, n.epsilon, n.offsets, n.has_bias, Normalized<float, H>{l.Out<float>(0), l.Out<H>(1), {}, {}}, l);
    });
  });
}

template <typename R>
struct Triple {
  R first, second, third;
  GRADLOOM_DEVICE Triple operator+(const Triple& other) const { return {first + other.first, second + other.second, third + other.third}; }
};

template <typename R, typename Threads>
GRADLOOM_DEVICE Triple<R> SumOfThreads(const Threads& block, const Triple<R>& mine) {
  if constexpr (sizeof mine <= 16) {
    return block.Reduce(mine, Sum{});
  } else {
    const Pair<R> two = block.Reduce(Pair<R>{mine.first, mine.second}, Sum{});
    return {two.first, two.second, block.Reduce(mine.third, Sum{})};
  }
}

// With h the normalized x and d = dy * scale: dx = inv_std * (d - mean(d) - h * mean(d * h)), where mean(d) is subtracted only if x is
// centered. dscale = sum of dy * h and dbias = sum of dy over the rows. dy has type G.
template <bool kCentered, typename T, typename G>
struct RowGradient {
  using R = Arithmetic<T>;

  const G* dy;
  const T *x, *scale;
  T* dx;  // null: not wanted
  Columns rows;
  R epsilon;
  OffsetCalculator<1> offsets;

  struct Row {
    Normalizer<R> normalizer;
    R grad_mean, proj_scale;
  };

  GRADLOOM_DEVICE R At(int64_t i) const { return static_cast<R>(x[i]); }
  GRADLOOM_DEVICE R Scaled(int64_t start, int64_t k) const {
    return static_cast<R>(dy[start + k]) * static_cast<R>(scale[offsets(k).at[0]]);
  }

  // The statistics of a row. Both operands are read together, so that later passes find them in the L1 cache.
  template <typename Threads>
  GRADLOOM_DEVICE Row Of(const Threads& block, int64_t row) const {
    const int64_t n = rows.columns, start = row * n;
    const R count = static_cast<R>(n);
    if constexpr (kCentered) {
      const auto sums = SumOf<Pair<R>>(block, n, [=, this](int64_t k) { return Pair<R>{At(start + k), Scaled(start, k)}; });
      const R pivot = sums.first / count, grad_mean = sums.second / count;
      Triple<R> mine{};
      for (int64_t k = block.thread(); k < n; k += block.threads()) {
        const R distance = At(start + k) - pivot;
        mine = mine + Triple<R>{distance, distance * distance, Scaled(start, k) * distance};
      }
      const Triple<R> all = SumOfThreads(block, mine);
      const Normalizer<R> normalizer = NormalizerOf(ShiftedMoments<R>{pivot, all.first, all.second}, count, epsilon);
      return {normalizer, grad_mean, normalizer.inv_std * (all.third - normalizer.rest * sums.second) / count};
    } else {
      const auto sums = SumOf<Pair<R>>(block, n, [=, this](int64_t k) {
        const R value = At(start + k);
        return Pair<R>{value * value, Scaled(start, k) * value};
      });
      const Normalizer<R> normalizer{0, 0, R(1) / static_cast<R>(::sqrt(sums.first / count + epsilon))};
      return {normalizer, 0, normalizer.inv_std * sums.second / count};
    }
  }

  // Writes element k of dx, and returns its contributions to the sums of its column.
  GRADLOOM_DEVICE Pair<R> Element(const Row& row, int64_t start, int64_t k) const {
    const R g = static_cast<R>(dy[start + k]), h = row.normalizer(At(start + k));
    if (dx != nullptr) dx[start + k] = static_cast<T>(row.normalizer.inv_std * (Scaled(start, k) - row.grad_mean - h * row.proj_scale));
    return {g * h, g};
  }
};

// Computes dx, and stores the normalization of each row.
template <bool kCentered, typename T, typename G>
void NormalizeGradient(const RowGradient<kCentered, T, G>& gradient, Normalizer<Arithmetic<T>>* normalizers, cudaStream_t stream) {
  const int64_t n = gradient.rows.columns;
  ForEachRowOf(
      gradient.rows.rows, n, 1, stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t row) {
        const auto found = gradient.Of(block, row);
        if (block.thread() == 0) normalizers[row] = found.normalizer;
        if (gradient.dx == nullptr) return;
        for (int64_t k = block.thread(); k < n; k += block.threads()) gradient.Element(found, row * n, k);
      });
}

// Computes dscale and dbias in another pass over x and dy.
template <bool kCentered, typename T, typename G>
void ScaleGradient(const RowGradient<kCentered, T, G>& gradient, const Normalizer<Arithmetic<T>>* normalizers,
                   Pair<Arithmetic<T>>* partials, FloatResults dscale, FloatResults dbias, cudaStream_t stream) {
  using R = Arithmetic<T>;
  const Columns rows = gradient.rows;
  const G* const dy = gradient.dy;
  const T* const x = gradient.x;
  const auto term = GRADLOOM_ON_DEVICE(int64_t row, int64_t column) {
    const int64_t i = row * rows.columns + column;
    const R g = static_cast<R>(dy[i]);
    return Pair<R>{g * normalizers[row](static_cast<R>(x[i])), g};
  };
  SumColumns(
      rows, partials, stream, term, GRADLOOM_ON_DEVICE(int64_t column, double product, double sum) {
        dscale.Set(column, product);
        dbias.Set(column, sum);
      });
}

// Computes all gradients while reading x and dy once. A block processes a run of rows and keeps the sums of the columns, each thread those
// of its own columns. `partials` has the sums of all runs, by column; kBytes of shared memory hold those of one run.
template <int kBytes, bool kCentered, typename T, typename G>
void GradientsOfRuns(const RowGradient<kCentered, T, G>& gradient, Pair<Arithmetic<T>>* partials, FloatResults dscale, FloatResults dbias,
                     cudaStream_t stream) {
  using R = Arithmetic<T>;
  const int64_t runs = RowRuns(gradient.rows).runs();
  ForEachRow(
      runs, stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t run) {
        const int64_t n = gradient.rows.columns, end = gradient.rows.rows * (run + 1) / runs;
        Pair<R>* const sums = Shared<0, Pair<R>, kBytes / sizeof(Pair<R>)>();
        for (int64_t k = block.thread(); k < n; k += block.threads()) sums[k] = {};
        for (int64_t row = gradient.rows.rows * run / runs; row < end; ++row) {
          const auto found = gradient.Of(block, row);
          for (int64_t k = block.thread(); k < n; k += block.threads()) sums[k] = sums[k] + gradient.Element(found, row * n, k);
        }
        for (int64_t k = block.thread(); k < n; k += block.threads()) partials[k * runs + run] = sums[k];
      });
  ForEachRowOf(
      gradient.rows.columns, runs, 1, stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t column) {
        const auto sums = SumOf<Pair<double>>(block, runs, [=](int64_t run) { return InDouble(partials[column * runs + run]); });
        if (block.thread() != 0) return;
        dscale.Set(column, sums.first);
        dbias.Set(column, sums.second);
      });
}

template <bool kCentered, typename T, typename G>
void Gradients(const RowGradient<kCentered, T, G>& gradient, FloatResults dscale, FloatResults dbias, const Launch& l) {
  using R = Arithmetic<T>;
  const bool sums = dscale.data != nullptr || dbias.data != nullptr;
  const RowRuns runs(gradient.rows);
  if (sums && runs.serve(sizeof(R))) {
    auto* const partials = static_cast<Pair<R>*>(l.scratch);
    if (runs.bytes(sizeof(R)) <= RowRuns::kFewBytes)
      GradientsOfRuns<RowRuns::kFewBytes>(gradient, partials, dscale, dbias, l.stream);
    else
      GradientsOfRuns<RowRuns::kMaxBytes>(gradient, partials, dscale, dbias, l.stream);
    return;
  }
  auto* const normalizers = static_cast<Normalizer<R>*>(l.scratch);
  auto* const partials = reinterpret_cast<Pair<R>*>(static_cast<double*>(l.scratch) + 3 * gradient.rows.rows);
  NormalizeGradient(gradient, normalizers, l.stream);
  if (sums) ScaleGradient(gradient, normalizers, partials, dscale, dbias, l.stream);
}

// The scratch memory has the sums of the runs; or the normalization of each row, followed by the sums of the chunks.
template <bool kCentered>
std::unique_ptr<Kernel> MakeNormalizeGrad(const KernelCall& call, const KernelSite&) {
  const Shape& x = call.inputs[1].shape;
  const Shape row = RowShape(call, x);
  const Columns rows = NormalizedRows(call, x);
  const OffsetCalculator<1> offsets(row, {AlongRow(row, call.inputs[2])});
  const double epsilon = call.attributes.Float("epsilon", 1e-5);
  const FloatVectors v(call);
  return WithFloating(call.inputs[1].dtype, [&]<typename T>(std::type_identity<T>) -> std::unique_ptr<Kernel> {
    const auto with = [&]<typename G>(std::type_identity<G>) {
      return MakeKernel([=](const Launch& l) {
        const RowGradient<kCentered, T, G> gradient{
            l.In<G>(0), l.In<T>(1), l.In<T>(2), static_cast<T*>(v.Out(l, 0).data), rows, static_cast<Arithmetic<T>>(epsilon), offsets};
        Gradients(gradient, v.Out(l, 1), v.Out(l, 2), l);
      });
    };
    if constexpr (kCentered && std::is_same_v<T, float>) {
      if (call.inputs[0].dtype != DType::kFloat32) return WithHalf(call.inputs[0].dtype, with);
    }
    return with(std::type_identity<T>{});
  });
}

constexpr CudaKernel kNormalizationKernels[] = {
    {"cuda.LayerNormalization", MakeNormalize<true>},
    {"cuda.gradloom.LayerNormCast", MakeNormalizeAndCast},
    {"cuda.gradloom.LayerNormGrad", MakeNormalizeGrad<true>},
    {"cuda.RMSNormalization", MakeNormalize<false>},
    {"cuda.gradloom.RmsNormGrad", MakeNormalizeGrad<false>},
    {"cuda.GroupNormalization", MakeGroupNorm},
    {"cuda.InstanceNormalization", MakeGroupNorm},
    {"cuda.gradloom.GroupNormGrad", MakeGroupNormGrad},
    {"cuda.MeanVarianceNormalization", MakeMeanVariance},
    {"cuda.LRN", MakeLocalResponse},
    {"cuda.gradloom.LrnGrad", MakeLocalResponseGrad},
};

}  // namespace

std::span<const CudaKernel> NormalizationKernels() { return kNormalizationKernels; }

}  // namespace gradloom::cuda
