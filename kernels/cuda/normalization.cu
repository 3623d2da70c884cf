// LayerNormalization and RMSNormalization, row by row.
#include "kernels/cuda/held_rows.cuh"
#include "kernels/cuda/moments.cuh"
#include "kernels/cuda/normalization.cuh"
#include "kernels/cuda/rounding.cuh"

namespace gradloom::cuda {
namespace {

// Normalizes n numbers by mean and deviation, or if not kCentered, by the root mean square. sum(term) adds term(x) over the numbers.
template <bool kCentered, typename R, typename SumOfNumbers>
GRADLOOM_DEVICE Normalizer<R> NormalizerBy(const SumOfNumbers& sum, R n, R epsilon) {
  if constexpr (kCentered) return NormalizerOf(ShiftedMomentsBy<R>(sum, n), n, epsilon);
  const R squares = sum([](R x) { return x * x; });
  return {0, 0, R(1) / static_cast<R>(::sqrt(squares / n + epsilon))};
}

// The outputs of a normalization; `rounded` is y in a 16-bit type. Null: not wanted.
template <typename T, typename H>
struct Normalized {
  T* y;
  H* rounded;
  FloatResults means, inv_stds;

  template <typename R>
  GRADLOOM_DEVICE void SetStatistics(int64_t row, const Normalizer<R>& normalizer) const {
    means.Set(row, static_cast<double>(normalizer.mean()));
    inv_stds.Set(row, static_cast<double>(normalizer.inv_std));
  }
};

// Scale and bias are read through `offsets`, which repeats them where they are broadcast.
template <bool kCentered, typename T, typename H>
void Normalize(const Columns& rows, double epsilon, const OffsetCalculator<2>& offsets, bool has_bias, const Normalized<T, H>& to,
               const Launch& l) {
  using R = Arithmetic<T>;
  const T *const x = l.In<T>(0), *const scale = l.In<T>(1), *const bias = has_bias ? l.In<T>(2) : nullptr;
  ForEachRowOf(
      rows.rows, rows.columns, 1, l.stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t row) {
        const int64_t start = row * rows.columns;
        const Elements<T> from{x + start};
        const SumOfNumbersAt<std::remove_cvref_t<decltype(block)>, Elements<T>> sum{block, rows.columns, from};
        const auto normalizer = NormalizerBy<kCentered, R>(sum, static_cast<R>(rows.columns), static_cast<R>(epsilon));
        for (int64_t k = block.thread(); k < rows.columns; k += block.threads()) {
          const auto place = offsets(k);
          const R number = normalizer(from(k)), factor = static_cast<R>(scale[place.at[0]]);
          const R result = bias == nullptr ? number * factor : MultiplyAdd(number, factor, static_cast<R>(bias[place.at[1]]));
          if (to.y != nullptr) to.y[start + k] = static_cast<T>(result);
          if (to.rounded != nullptr) to.rounded[start + k] = static_cast<H>(static_cast<float>(result));
        }
        if (block.thread() == 0) to.SetStatistics(row, normalizer);
      });
}

// sum(term) adds term(x) over the numbers x of a held row.
template <int kVectors, typename Threads, typename Row>
struct SumOverHeld {
  const Threads& threads;
  int64_t n;
  const Row& x;
  template <typename Term>
  GRADLOOM_DEVICE auto operator()(const Term& term) const {
    return SumOfHeld<decltype(term(0.0f)), kVectors>(threads, n, [&](int j, int e) { return term(x(j, e)); });
  }
};

// Scale and bias of held rows; `bias` may be null.
struct HeldAffine {
  using Vector = AlignedVector<float, kHeldVector>;
  const float *scale, *bias;

  // The result for elements k and following, of which element e is numbers(e) before.
  template <typename Numbers>
  GRADLOOM_DEVICE Vector operator()(int k, const Numbers& numbers) const {
    const Vector scales = *reinterpret_cast<const Vector*>(scale + k);
    const Vector biases = bias == nullptr ? Vector{} : *reinterpret_cast<const Vector*>(bias + k);
    Vector results;
    GRADLOOM_UNROLL
    for (int e = 0; e < kHeldVector; ++e) {
      const float number = numbers(e);
      results.at[e] = bias == nullptr ? number * scales.at[e] : MultiplyAdd(number, scales.at[e], biases.at[e]);
    }
    return results;
  }
};

// The operand of a normalization of held rows.
struct OneOperand {
  const float* x;

  template <int kVectors, typename Threads>
  GRADLOOM_DEVICE HeldRow<kVectors, float> Load(const Threads& threads, int64_t n, int64_t start) const {
    return {threads, n, x + start};
  }
};

// The sum of two, which is also written unless `sum` is null.
struct SumOfTwo {
  FloatRows a, b;
  float* sum;

  template <int kVectors, typename Threads>
  GRADLOOM_DEVICE HeldSum<kVectors> Load(const Threads& threads, int64_t n, int64_t start) const {
    const HeldSum<kVectors> row(threads, n, a, b, start);
    Store<kVectors>(row, threads, n, start);
    return row;
  }
  template <int kVectors, typename Row, typename Threads>
  GRADLOOM_DEVICE void Store(const Row& row, const Threads& threads, int64_t n, int64_t start) const {
    if (sum == nullptr) return;
    ForEachHeldVector<kVectors>(threads, n, [&](int j, int k) { *reinterpret_cast<FloatRows::Vector*>(sum + start + k) = row.vectors[j]; });
  }
};

// This thread's elements of a row that is computed.
template <int kVectors>
struct HeldNumbers {
  FloatRows::Vector vectors[kVectors];
  // Element e of vector j.
  GRADLOOM_DEVICE float operator()(int j, int e) const { return vectors[j].at[e]; }
};

// The sum of a normalized operand and another one, with the bits of a normalization by itself.
struct SumOfNormalized {
  SumOfTwo operands;
  HeldAffine affine;
  float epsilon;

  template <int kVectors, typename Threads>
  GRADLOOM_DEVICE HeldNumbers<kVectors> Load(const Threads& threads, int64_t n, int64_t start) const {
    // With more vectors, a thread would not have registers for both rows at once.
    constexpr bool kTogether = kVectors < 8;
    HeldNumbers<kVectors> row;
    FloatRows::Vector more[kVectors];
    ForEachHeldVector<kVectors>(threads, n, [&](int j, int k) {
      row.vectors[j] = operands.a(start + k);
      if (kTogether) more[j] = operands.b(start + k);
    });
    const SumOverHeld<kVectors, Threads, HeldNumbers<kVectors>> over{threads, n, row};
    const auto normalizer = NormalizerBy<true, float>(over, static_cast<float>(n), epsilon);
    ForEachHeldVector<kVectors>(threads, n, [&](int j, int k) {
      if (!kTogether) more[j] = operands.b(start + k);
      const auto normalized = affine(k, [&](int e) { return normalizer(row(j, e)); });
      GRADLOOM_UNROLL
      for (int e = 0; e < kHeldVector; ++e) row.vectors[j].at[e] = SeparateSum(normalized.at[e], more[j].at[e]);
    });
    operands.Store<kVectors>(row, threads, n, start);
    return row;
  }
};

// The same for rows that are held in registers.
template <bool kCentered, typename Operand, typename Held, typename H>
struct NormalizeHeld {
  using Threads = typename Held::Threads;
  static constexpr int kVectors = Held::kVectors;
  using Row = decltype(std::declval<Operand>().template Load<kVectors>(std::declval<Threads>(), 0, 0));

  int64_t columns;
  float epsilon;
  Operand operand;
  HeldAffine affine;
  Normalized<float, H> to;

  GRADLOOM_DEVICE void operator()(const Threads& threads, int64_t row) const {
    const int64_t n = columns, start = row * n;
    const Row x = operand.template Load<kVectors>(threads, n, start);
    const SumOverHeld<kVectors, Threads, Row> over{threads, n, x};
    const auto normalizer = NormalizerBy<kCentered, float>(over, static_cast<float>(n), epsilon);
    ForEachHeldVector<kVectors>(threads, n, [&](int j, int k) {
      const HeldAffine::Vector results = affine(k, [&](int e) { return normalizer(x(j, e)); });
      AlignedVector<H, kHeldVector> rounded;
      GRADLOOM_UNROLL
      for (int e = 0; e < kHeldVector; ++e) rounded.at[e] = static_cast<H>(results.at[e]);
      if (to.y != nullptr) *reinterpret_cast<HeldAffine::Vector*>(to.y + start + k) = results;
      if (to.rounded != nullptr) *reinterpret_cast<AlignedVector<H, kHeldVector>*>(to.rounded + start + k) = rounded;
    });
    if (threads.thread() == 0) to.SetStatistics(row, normalizer);
  }
};

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
  bool has_bias, held;

  explicit NormalizedCall(const KernelCall& call)
      : rows(NormalizedRows(call, call.inputs[0].shape)),
        epsilon(call.attributes.Float("epsilon", 1e-5)),
        offsets(ScaleAndBias(call)),
        has_bias(Has(call.inputs, 2)),
        held(HoldsRows(call.inputs[0], rows, call.inputs[1], has_bias ? call.inputs[2] : OperandType())) {}
};

template <bool kCentered, typename Operand, typename H>
void NormalizeHeldRows(const Columns& rows, double epsilon, const Operand& operand, const HeldAffine& affine,
                       const Normalized<float, H>& to, cudaStream_t stream) {
  WithHolding(HeldRows(rows), [&]<typename Held>(Held) {
    ForEachHeldRow<Held>(rows.rows, stream,
                         NormalizeHeld<kCentered, Operand, Held, H>{rows.columns, static_cast<float>(epsilon), operand, affine, to});
  });
}

template <bool kCentered, typename T, typename H>
void Normalize(const NormalizedCall& n, const Normalized<T, H>& to, const Launch& l) {
  if constexpr (std::is_same_v<T, float>) {
    if (n.held) {
      const HeldAffine affine{l.In<float>(1), n.has_bias ? l.In<float>(2) : nullptr};
      return NormalizeHeldRows<kCentered>(n.rows, n.epsilon, OneOperand{l.In<float>(0)}, affine, to, l.stream);
    }
  }
  Normalize<kCentered, T>(n.rows, n.epsilon, n.offsets, n.has_bias, to, l);
}

template <bool kCentered>
std::unique_ptr<Kernel> MakeNormalize(const KernelCall& call, const KernelSite&) {
  const NormalizedCall n(call);
  const FloatVectors v(call);
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) {
      Normalize<kCentered, T>(n, Normalized<T, Half>{l.Out<T>(0), nullptr, v.Out(l, 1), v.Out(l, 2)}, l);
    });
  });
}

// LayerNormalization of float32 with an additional output in a 16-bit type.
std::unique_ptr<Kernel> MakeNormalizeAndCast(const KernelCall& call, const KernelSite&) {
  const NormalizedCall n(call);
  return WithHalf(call.outputs[1].dtype, [&]<typename H>(std::type_identity<H>) {
    return MakeKernel([=](const Launch& l) { Normalize<true, float>(n, Normalized<float, H>{l.Out<float>(0), l.Out<H>(1), {}, {}}, l); });
  });
}

// The same of a sum, for rows that are held. The first operand may be normalized before.
std::unique_ptr<Kernel> MakeSumAndNormalize(const KernelCall& call, const KernelSite&) {
  const Columns rows = NormalizedRows(call, call.inputs[0].shape);
  const double epsilon = call.attributes.Float("epsilon", 1e-5);
  const auto inner_epsilon = static_cast<float>(call.attributes.Float("inner_epsilon", 1e-5));
  const bool has_bias = Has(call.inputs, 3), inner = Has(call.inputs, 4), has_inner_bias = Has(call.inputs, 5);
  const DType type = call.inputs[1].dtype;
  return WithHalf(call.attributes.Int("to", 0) == static_cast<int64_t>(DType::kFloat16) ? DType::kFloat16 : DType::kBfloat16,
                  [&]<typename H>(std::type_identity<H>) {
                    return MakeKernel([=](const Launch& l) {
                      const SumOfTwo operands{{l.In<float>(0), DType::kFloat32}, {l.inputs[1], type}, l.Out<float>(0)};
                      const HeldAffine affine{l.In<float>(2), has_bias ? l.In<float>(3) : nullptr};
                      const Normalized<float, H> to{l.Out<float>(1), l.Out<H>(2), {}, {}};
                      if (!inner) return NormalizeHeldRows<true>(rows, epsilon, operands, affine, to, l.stream);
                      const HeldAffine of_inner{l.In<float>(4), has_inner_bias ? l.In<float>(5) : nullptr};
                      NormalizeHeldRows<true>(rows, epsilon, SumOfNormalized{operands, of_inner, inner_epsilon}, affine, to, l.stream);
                    });
                  });
}

constexpr CudaKernel kNormalizationKernels[] = {
    {"cuda.LayerNormalization", MakeNormalize<true>},
    {"cuda.gradloom.LayerNormCast", MakeNormalizeAndCast},
    {"cuda.gradloom.LayerNormGrad", MakeLayerNormGrad},
    {"cuda.RMSNormalization", MakeNormalize<false>},
    {"cuda.gradloom.RmsNormGrad", MakeRmsNormGrad},
    {"cuda.GroupNormalization", MakeGroupNorm},
    {"cuda.InstanceNormalization", MakeGroupNorm},
    {"cuda.gradloom.GroupNormGrad", MakeGroupNormGrad},
    {"cuda.MeanVarianceNormalization", MakeMeanVariance},
    {"cuda.LRN", MakeLocalResponse},
    {"cuda.gradloom.LrnGrad", MakeLocalResponseGrad},
    {"cuda.gradloom.SumLayerNorm", MakeSumAndNormalize},
    {"cuda.gradloom.SumLayerNormGrad", MakeSumLayerNormGrad},
};

}  // namespace

std::span<const CudaKernel> NormalizationKernels() { return kNormalizationKernels; }

}  // namespace gradloom::cuda
