// The gradients of LayerNormalization and RMSNormalization.
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/held_rows.cuh"
#include "kernels/cuda/moments.cuh"
#include "kernels/cuda/normalization.cuh"
#include "kernels/cuda/rounding.cuh"
#include "kernels/cuda/shared.cuh"

namespace gradloom::cuda {
namespace {

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

template <typename R, typename Threads>
GRADLOOM_DEVICE Pair<R> SumOfThreads(const Threads& block, const Pair<R>& mine) {
  return block.Reduce(mine, Sum{});
}

// What dx of a row depends on.
template <typename R>
struct RowStatistics {
  Normalizer<R> normalizer;
  R grad_mean, proj_scale;

  // With d = dy * scale, dx for an element; h is its normalized x.
  GRADLOOM_DEVICE R Dx(R d, R h) const { return normalizer.inv_std * MultiplyAdd(-h, proj_scale, d - grad_mean); }
};

// With h the normalized x and d = dy * scale: dx = inv_std * (d - mean(d) - h * mean(d * h)), where mean(d) is subtracted only if x is
// centered. sum(add) calls add(sums, x, d) over the row, which returns the sums with these numbers.
template <bool kCentered, typename R, typename SumOfRow>
GRADLOOM_DEVICE RowStatistics<R> StatisticsBy(const SumOfRow& sum, R count, R epsilon) {
  if constexpr (kCentered) {
    const auto sums = sum([](const Pair<R>& to, R x, R d) { return Pair<R>{to.first + x, to.second + d}; });
    const R pivot = sums.first / count, grad_mean = sums.second / count;
    const auto all = sum([=](const Triple<R>& to, R x, R d) {
      const R distance = x - pivot;
      return Triple<R>{to.first + distance, MultiplyAdd(distance, distance, to.second), MultiplyAdd(d, distance, to.third)};
    });
    const Normalizer<R> normalizer = NormalizerOf(ShiftedMoments<R>{pivot, all.first, all.second}, count, epsilon);
    return {normalizer, grad_mean, normalizer.inv_std * MultiplyAdd(-normalizer.rest, sums.second, all.third) / count};
  } else {
    const auto sums = sum([](const Pair<R>& to, R x, R d) { return Pair<R>{MultiplyAdd(x, x, to.first), MultiplyAdd(d, x, to.second)}; });
    const Normalizer<R> normalizer{0, 0, R(1) / static_cast<R>(::sqrt(sums.first / count + epsilon))};
    return {normalizer, 0, normalizer.inv_std * sums.second / count};
  }
}

// The operands of a gradient; dscale = sum of dy * h and dbias = sum of dy over the rows. dy has type G.
template <bool kCentered, typename T, typename G>
struct RowGradient {
  using R = Arithmetic<T>;

  const G* dy;
  const T *x, *scale;
  T* dx;  // null: not wanted
  Columns rows;
  R epsilon;
  OffsetCalculator<1> offsets;

  GRADLOOM_DEVICE R At(int64_t i) const { return static_cast<R>(x[i]); }
  GRADLOOM_DEVICE R Scaled(int64_t start, int64_t k) const {
    return static_cast<R>(dy[start + k]) * static_cast<R>(scale[offsets(k).at[0]]);
  }

  // Reads both operands together, so that later passes find them in the L1 cache.
  template <typename Threads>
  struct Summing {
    const RowGradient& gradient;
    const Threads& threads;
    int64_t start;

    template <typename Add>
    GRADLOOM_DEVICE auto operator()(const Add& add) const {
      decltype(add({}, R{}, R{})) mine{};
      for (int64_t k = threads.thread(); k < gradient.rows.columns; k += threads.threads())
        mine = add(mine, gradient.At(start + k), gradient.Scaled(start, k));
      return SumOfThreads(threads, mine);
    }
  };

  template <typename Threads>
  GRADLOOM_DEVICE RowStatistics<R> Of(const Threads& block, int64_t row) const {
    return StatisticsBy<kCentered, R>(Summing<Threads>{*this, block, row * rows.columns}, static_cast<R>(rows.columns), epsilon);
  }

  // Writes element k of dx, and returns its contributions to the sums of its column.
  GRADLOOM_DEVICE Pair<R> Element(const RowStatistics<R>& row, int64_t start, int64_t k) const {
    const R g = static_cast<R>(dy[start + k]), h = row.normalizer(At(start + k));
    if (dx != nullptr) dx[start + k] = static_cast<T>(row.Dx(Scaled(start, k), h));
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

// Sums over the runs of rows; `partials` has the sums of each run, by column.
template <typename R>
void SumRuns(int64_t columns, int64_t runs, const Pair<R>* partials, FloatResults dscale, FloatResults dbias, cudaStream_t stream) {
  ForEachRowOf(
      columns, runs, 1, stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t column) {
        const auto sums = SumOf<Pair<double>>(block, runs, [=](int64_t run) { return InDouble(partials[column * runs + run]); });
        if (block.thread() != 0) return;
        dscale.Set(column, sums.first);
        dbias.Set(column, sums.second);
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
  SumRuns(gradient.rows.columns, runs, partials, dscale, dbias, stream);
}

// The incoming gradient of a normalization of held rows, and where dx goes.
template <typename G>
struct OneGradient {
  // Up to this number of vectors of x, dy and two sums, two blocks of a multiprocessor have enough registers.
  static constexpr int kVectorsOfTwoBlocks = 6;

  const G* dy;
  float* dx;  // null: not wanted

  template <int kVectors, typename Threads>
  GRADLOOM_DEVICE HeldRow<kVectors, G> Load(const Threads& threads, int64_t n, int64_t start) const {
    return {threads, n, dy + start};
  }
  GRADLOOM_DEVICE void Store(int64_t at, const FloatRows::Vector& results) const {
    if (dx != nullptr) *reinterpret_cast<FloatRows::Vector*>(dx + at) = results;
  }
};

// The incoming gradient is a sum, and so is the result, which is also rounded to 16 bits.
struct SumOfGradients {
  static constexpr int kVectorsOfTwoBlocks = 4;  // dy is held as float32

  FloatRows dy, more;   // `more` may be absent
  const float* addend;  // null: none
  float* dx;            // null: not wanted
  RoundedRows rounded;

  template <int kVectors, typename Threads>
  GRADLOOM_DEVICE HeldSum<kVectors> Load(const Threads& threads, int64_t n, int64_t start) const {
    return {threads, n, dy, more, start};
  }
  GRADLOOM_DEVICE void Store(int64_t at, FloatRows::Vector results) const {
    if (addend != nullptr) {
      const auto other = *reinterpret_cast<const FloatRows::Vector*>(addend + at);
      GRADLOOM_UNROLL
      for (int e = 0; e < kHeldVector; ++e) results.at[e] = SeparateSum(results.at[e], other.at[e]);
    }
    if (dx != nullptr) *reinterpret_cast<FloatRows::Vector*>(dx + at) = results;
    rounded.Store(at, results);
  }
};

// A block's run of rows that are held in registers, as are each thread's sums of its columns.
template <bool kCentered, typename Gradients, typename Held>
struct GradientOfHeldRun {
  using Threads = typename Held::Threads;
  static constexpr int kVectors = Held::kVectors;
  using Vector = AlignedVector<float, kHeldVector>;

  Gradients gradients;
  const float *x, *scale;
  Columns rows;
  float epsilon;
  int64_t runs;
  Pair<float>* partials;  // by column, then by run; null: not wanted

  struct Operands {
    HeldRow<kVectors, float> x;
    decltype(std::declval<Gradients>().template Load<kVectors>(std::declval<Threads>(), 0, 0)) dy;
    const float* scale;

    // With d = dy * scale.
    GRADLOOM_DEVICE Vector D(int j, int k) const {
      Vector d = *reinterpret_cast<const Vector*>(scale + k);
      GRADLOOM_UNROLL
      for (int e = 0; e < kHeldVector; ++e) d.at[e] = SeparateProduct(d.at[e], dy(j, e));
      return d;
    }
  };

  struct Summing {
    const Operands& operands;
    const Threads& threads;
    int64_t n;

    template <typename Add>
    GRADLOOM_DEVICE auto operator()(const Add& add) const {
      decltype(add({}, 0.0f, 0.0f)) mine{};
      ForEachHeldVector<kVectors>(threads, n, [&](int j, int k) {
        const Vector d = operands.D(j, k);
        GRADLOOM_UNROLL
        for (int e = 0; e < kHeldVector; ++e) mine = add(mine, operands.x(j, e), d.at[e]);
      });
      return SumOfThreads(threads, mine);
    }
  };

  GRADLOOM_DEVICE void operator()(const Block& block, int64_t run) const {
    const Threads threads;
    const int64_t n = rows.columns;
    const int group = block.thread() / threads.threads();
    Pair<float> sums[kVectors][kHeldVector] = {};
    for (int64_t row = run * Held::kGroups + group; row < rows.rows; row += runs * Held::kGroups) {
      const int64_t start = row * n;
      const Operands operands{{threads, n, x + start}, gradients.template Load<kVectors>(threads, n, start), scale};
      const auto found = StatisticsBy<kCentered, float>(Summing{operands, threads, n}, static_cast<float>(n), epsilon);
      ForEachHeldVector<kVectors>(threads, n, [&](int j, int k) {
        Vector results = operands.D(j, k);
        GRADLOOM_UNROLL
        for (int e = 0; e < kHeldVector; ++e) {
          const float g = operands.dy(j, e), h = found.normalizer(operands.x(j, e));
          results.at[e] = found.Dx(results.at[e], h);
          sums[j][e] = {MultiplyAdd(g, h, sums[j][e].first), sums[j][e].second + g};
        }
        gradients.Store(start + k, results);
      });
    }
    if (partials != nullptr) Store(block, run, group, sums);
  }

  // Stores the sums of the run, those of its groups of threads added in their order.
  GRADLOOM_DEVICE void Store(const Block& block, int64_t run, int group, const Pair<float> (&sums)[kVectors][kHeldVector]) const {
    const Threads threads;
    const int64_t n = rows.columns;
    if constexpr (!Held::kByWarp) {
      ForEachHeldVector<kVectors>(threads, n, [&](int j, int k) {
        GRADLOOM_UNROLL
        for (int e = 0; e < kHeldVector; ++e) partials[(k + e) * runs + run] = sums[j][e];
      });
      return;
    }
    Pair<float>* const all = Shared<0, Pair<float>, HeldRows::kWarpColumns>();
    for (int turn = 0; turn < Held::kGroups; ++turn) {
      block.Sync();  // also: the previous run's sums have been read
      if (group != turn) continue;
      ForEachHeldVector<kVectors>(threads, n, [&](int j, int k) {
        GRADLOOM_UNROLL
        for (int e = 0; e < kHeldVector; ++e) all[k + e] = turn == 0 ? sums[j][e] : all[k + e] + sums[j][e];
      });
    }
    block.Sync();
    for (int64_t k = block.thread(); k < n; k += block.threads()) partials[k * runs + run] = all[k];
  }
};

// The operands of a gradient of held rows, apart from the incoming gradient.
struct HeldOperands {
  const float *x, *scale;
  Columns rows;
  float epsilon;
};

// Computes all gradients of rows that HeldRows serves.
template <bool kCentered, typename Gradients>
void GradientsOfHeldRows(const Gradients& gradients, const HeldOperands& o, FloatResults dscale, FloatResults dbias, const Launch& l) {
  const HeldRows rows(o.rows);
  const int64_t runs = rows.runs();
  const bool sums = dscale.data != nullptr || dbias.data != nullptr;
  auto* const partials = sums ? static_cast<Pair<float>*>(l.scratch) : nullptr;
  WithHolding(rows, [&]<typename Held>(Held) {
    constexpr int kConcurrent = Held::kVectors <= Gradients::kVectorsOfTwoBlocks ? 2 : 1;
    ForEachRun<kConcurrent>(runs, l.stream,
                            GradientOfHeldRun<kCentered, Gradients, Held>{gradients, o.x, o.scale, o.rows, o.epsilon, runs, partials});
  });
  if (sums) SumRuns(rows.columns, runs, partials, dscale, dbias, l.stream);
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

// The scratch memory has the sums of the runs, in either form of the kernel; or the normalization of each row, followed by the sums of the
// chunks.
template <bool kCentered>
std::unique_ptr<Kernel> MakeNormalizeGrad(const KernelCall& call) {
  const Shape& x = call.inputs[1].shape;
  const Shape row = RowShape(call, x);
  const Columns rows = NormalizedRows(call, x);
  const OffsetCalculator<1> offsets(row, {AlongRow(row, call.inputs[2])});
  const double epsilon = call.attributes.Float("epsilon", 1e-5);
  const FloatVectors v(call);
  const bool held = HoldsRows(call.inputs[1], rows, call.inputs[2], {});
  return WithFloating(call.inputs[1].dtype, [&]<typename T>(std::type_identity<T>) -> std::unique_ptr<Kernel> {
    const auto with = [&]<typename G>(std::type_identity<G>) {
      return MakeKernel([=](const Launch& l) {
        const RowGradient<kCentered, T, G> gradient{
            l.In<G>(0), l.In<T>(1), l.In<T>(2), static_cast<T*>(v.Out(l, 0).data), rows, static_cast<Arithmetic<T>>(epsilon), offsets};
        if constexpr (std::is_same_v<T, float>) {
          if (held) {
            return GradientsOfHeldRows<kCentered>(OneGradient<G>{gradient.dy, gradient.dx},
                                                  {gradient.x, gradient.scale, rows, gradient.epsilon}, v.Out(l, 1), v.Out(l, 2), l);
          }
        }
        Gradients(gradient, v.Out(l, 1), v.Out(l, 2), l);
      });
    };
    if constexpr (kCentered && std::is_same_v<T, float>) {
      if (call.inputs[0].dtype != DType::kFloat32) return WithHalf(call.inputs[0].dtype, with);
    }
    return with(std::type_identity<T>{});
  });
}

}  // namespace

std::unique_ptr<Kernel> MakeLayerNormGrad(const KernelCall& call, const KernelSite&) { return MakeNormalizeGrad<true>(call); }
std::unique_ptr<Kernel> MakeRmsNormGrad(const KernelCall& call, const KernelSite&) { return MakeNormalizeGrad<false>(call); }

std::unique_ptr<Kernel> MakeSumLayerNormGrad(const KernelCall& call, const KernelSite&) {
  const Columns rows = NormalizedRows(call, call.inputs[2].shape);
  const auto epsilon = static_cast<float>(call.attributes.Float("epsilon", 1e-5));
  const DType type = call.inputs[0].dtype, to = static_cast<DType>(call.attributes.Int("to", 0));
  const bool adds = Has(call.inputs, 1), has_addend = Has(call.inputs, 4), rounds = Has(call.outputs, 3);
  const FloatVectors v(call);
  return MakeKernel([=](const Launch& l) {
    const SumOfGradients gradients{{l.inputs[0], type},
                                   {adds ? l.inputs[1] : nullptr, DType::kFloat32},
                                   has_addend ? l.In<float>(4) : nullptr,
                                   static_cast<float*>(v.Out(l, 0).data),
                                   {rounds ? l.outputs[3] : nullptr, to}};
    GradientsOfHeldRows<true>(gradients, {l.In<float>(2), l.In<float>(3), rows, epsilon}, v.Out(l, 1), v.Out(l, 2), l);
  });
}

}  // namespace gradloom::cuda
