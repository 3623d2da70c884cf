// LayerNormalization, RMSNormalization and their gradients: a row at a time.
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/moments.cuh"
#include "kernels/cuda/normalization.cuh"

namespace gradloom::cuda {
namespace {

// By mean and deviation, or by the root of the mean square alone.
template <bool kCentred, typename R, typename Threads, typename At>
GRADLOOM_DEVICE Normal<R> RowNormal(const Threads& block, int64_t n, R epsilon, At at) {
  if constexpr (kCentred) return NormalOf(DistancesOf<R>(block, n, at), static_cast<R>(n), epsilon);
  const R squares = SumOf<R>(block, n, [=](int64_t k) { return at(k) * at(k); });
  return {0, 0, R(1) / static_cast<R>(::sqrt(squares / static_cast<R>(n) + epsilon))};
}

// What a normalisation writes; `rounded` is the same in 16 bits. Null: unwanted.
template <typename S, typename H>
struct Normalized {
  S* y;
  H* rounded;
  FloatResults means, inv_stds;
};

// The output has the type of the scale. Scale and bias are read along `walk`, which repeats them where they are broadcast.
template <bool kCentred, typename T, typename S, typename H>
void Normalize(const Columns& rows, double epsilon, const Walk<2>& walk, bool has_bias, const Normalized<S, H>& to, const Launch& l) {
  using R = Arithmetic<T>;
  const T* const x = l.In<T>(0);
  const S *const scale = l.In<S>(1), *const bias = has_bias ? l.In<S>(2) : nullptr;
  ForEachRowOf(
      rows.rows, rows.columns, 1, l.stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t row) {
        const int64_t start = row * rows.columns;
        const Elements<T> from{x + start};
        const Normal<R> normal = RowNormal<kCentred>(block, rows.columns, static_cast<R>(epsilon), from);
        for (int64_t k = block.thread(); k < rows.columns; k += block.threads()) {
          const auto place = walk(k);
          const R value = normal(from(k)) * static_cast<R>(scale[place.at[0]]);
          const R result = bias == nullptr ? value : value + static_cast<R>(bias[place.at[1]]);
          if (to.y != nullptr) to.y[start + k] = static_cast<S>(result);
          if (to.rounded != nullptr) to.rounded[start + k] = static_cast<H>(static_cast<float>(result));
        }
        if (block.thread() != 0) return;
        to.means.Set(row, static_cast<double>(normal.mean()));
        to.inv_stds.Set(row, static_cast<double>(normal.inv_std));
      });
}

// How a row finds an operand that broadcasts over the normalised axes.
std::vector<int64_t> AlongRow(const Shape& row, const OperandType& operand) {
  return operand.present() ? BroadcastStrides(operand.shape, row) : std::vector<int64_t>(static_cast<size_t>(row.rank()), 0);
}

Shape RowShape(const KernelCall& call, const Shape& x) {
  return Shape(std::vector<int64_t>(x.begin() + AxisOf(call, call.attributes.Int("axis", -1), x.rank()), x.end()));
}

// The scale and the bias of a normalisation, along a row of x.
Walk<2> ScaleAndBias(const KernelCall& call) {
  const Shape row = RowShape(call, call.inputs[0].shape);
  return Walk<2>(row, {AlongRow(row, call.inputs[1]), AlongRow(row, Has(call.inputs, 2) ? call.inputs[2] : OperandType())});
}

// What a normalisation of rows knows before it runs.
struct NormalizedCall {
  Columns rows;
  double epsilon;
  Walk<2> walk;
  bool has_bias;

  explicit NormalizedCall(const KernelCall& call)
      : rows(NormalizedRows(call, call.inputs[0].shape)),
        epsilon(call.attributes.Float("epsilon", 1e-5)),
        walk(ScaleAndBias(call)),
        has_bias(Has(call.inputs, 2)) {}
};

template <bool kCentred>
std::unique_ptr<Kernel> MakeNormalize(const KernelCall& call, const KernelSite&) {
  const NormalizedCall n(call);
  const FloatVectors v(call);
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const auto with = [&]<typename S>(std::type_identity<S>) {
      return Runs([=](const Launch& l) {
        Normalize<kCentred, T>(n.rows, n.epsilon, n.walk, n.has_bias, Normalized<S, Half>{l.Out<S>(0), nullptr, v.Out(l, 1), v.Out(l, 2)},
                               l);
      });
    };
    if constexpr (kCentred)
      return with(std::type_identity<T>{});  // the scale of LayerNormalization has the type of x
    else
      return WithFloating(call.inputs[1].dtype, with);
  });
}

// f(std::type_identity<H>{}) for a 16-bit type.
template <typename F>
std::unique_ptr<Kernel> WithHalf(DType dtype, const F& f) {
  return dtype == DType::kFloat16 ? f(std::type_identity<Half>{}) : f(std::type_identity<Bfloat16>{});
}

// LayerNormalization of float32 whose result is wanted in 16 bits, too.
std::unique_ptr<Kernel> MakeNormalizeAndCast(const KernelCall& call, const KernelSite&) {
  const NormalizedCall n(call);
  return WithHalf(call.outputs[1].dtype, [&]<typename H>(std::type_identity<H>) {
    return Runs([=](const Launch& l) {
      Normalize<true, float>(n.rows, n.epsilon, n.walk, n.has_bias, Normalized<float, H>{l.Out<float>(0), l.Out<H>(1), {}, {}}, l);
    });
  });
}

// With h the normalised x and d = dy * scale: dx = inv_std * (d - mean(d) - h * mean(d * h)), where the first mean belongs to a centred
// x. Leaves what normalises each row. dy has type G.
template <bool kCentred, typename T, typename G>
void NormalizeGradient(const Columns& rows, double epsilon, const Walk<1>& walk, const Launch& l, T* dx, Normal<Arithmetic<T>>* normals) {
  using R = Arithmetic<T>;
  const G* const dy = l.In<G>(0);
  const T *const x = l.In<T>(1), *const scale = l.In<T>(2);
  ForEachRowOf(
      rows.rows, rows.columns, 1, l.stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t row) {
        const int64_t n = rows.columns, start = row * n;
        const Elements<T> from{x + start};
        const Normal<R> normal = RowNormal<kCentred>(block, n, static_cast<R>(epsilon), from);
        if (block.thread() == 0) normals[row] = normal;
        if (dx == nullptr) return;
        const auto scaled = [=](int64_t k) { return static_cast<R>(dy[start + k]) * static_cast<R>(scale[walk(k).at[0]]); };
        const auto sums = SumOf<Pair<R>>(block, n, [=](int64_t k) {
          const R d = scaled(k);
          return Pair<R>{d, d * normal(from(k))};
        });
        const R level = kCentred ? sums.first / static_cast<R>(n) : R(0), along = sums.second / static_cast<R>(n);
        for (int64_t k = block.thread(); k < n; k += block.threads()) {
          dx[start + k] = static_cast<T>(normal.inv_std * (scaled(k) - level - normal(from(k)) * along));
        }
      });
}

// dscale = sum of dy * h and dbias = sum of dy over the rows.
template <typename T, typename G>
void ScaleGradient(const Columns& rows, const Normal<Arithmetic<T>>* normals, Pair<Arithmetic<T>>* partials, FloatResults dscale,
                   FloatResults dbias, const Launch& l) {
  using R = Arithmetic<T>;
  const G* const dy = l.In<G>(0);
  const T* const x = l.In<T>(1);
  const auto term = GRADLOOM_ON_DEVICE(int64_t row, int64_t column) {
    const int64_t i = row * rows.columns + column;
    const R g = static_cast<R>(dy[i]);
    return Pair<R>{g * normals[row](static_cast<R>(x[i])), g};
  };
  SumColumns(
      rows, partials, l.stream, term, GRADLOOM_ON_DEVICE(int64_t column, double product, double sum) {
        dscale.Set(column, product);
        dbias.Set(column, sum);
      });
}

// The scratch memory has what normalises each row, then the sums of chunks.
template <bool kCentred>
std::unique_ptr<Kernel> MakeNormalizeGrad(const KernelCall& call, const KernelSite&) {
  const Shape& x = call.inputs[1].shape;
  const Shape row = RowShape(call, x);
  const Columns rows = NormalizedRows(call, x);
  const Walk<1> walk(row, {AlongRow(row, call.inputs[2])});
  const double epsilon = call.attributes.Float("epsilon", 1e-5);
  const FloatVectors v(call);
  return WithFloating(call.inputs[1].dtype, [&]<typename T>(std::type_identity<T>) -> std::unique_ptr<Kernel> {
    const auto with = [&]<typename G>(std::type_identity<G>) {
      return Runs([=](const Launch& l) {
        using R = Arithmetic<T>;
        auto* const normals = static_cast<Normal<R>*>(l.scratch);
        auto* const partials = reinterpret_cast<Pair<R>*>(static_cast<double*>(l.scratch) + 3 * rows.rows);
        NormalizeGradient<kCentred, T, G>(rows, epsilon, walk, l, static_cast<T*>(v.Out(l, 0).data), normals);
        const FloatResults dscale = v.Out(l, 1), dbias = v.Out(l, 2);
        if (dscale.data != nullptr || dbias.data != nullptr) ScaleGradient<T, G>(rows, normals, partials, dscale, dbias, l);
      });
    };
    if constexpr (kCentred && std::is_same_v<T, float>) {
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
