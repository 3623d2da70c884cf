// The cross entropy and its gradient in one launch. A group of threads processes a row: it reads the scores twice, the second time from the
// L2 cache, and writes the gradient, which may overwrite them.
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/cuda/exp_sum.cuh"
#include "kernels/cuda/long_block.cuh"
#include "kernels/cuda/loss_rows.cuh"

namespace gradloom::cuda {
namespace {

// Blocks of 256 threads have so many rows of more classes under way that the cache may not hold them until they are read again.
constexpr int64_t kLongRow = 8192;

// With smoothing e, weights w, class t and upstream gradient g of a row:
//   loss = -(1 - e) w[t] log p[t] - e / C * sum over c of w[c] log p[c]
//   gradient[c] = g (p[c] ((1 - e) w[t] + e / C * sum of w) - e / C * w[c]), minus g (1 - e) w[t] at the class.
template <typename T, bool kVectors>
struct CrossEntropyTrainingLine {
  using A = Arithmetic<T>;
  using E = std::conditional_t<kIsHalf<T>, FastExp, Exp>;
  using Rows = ScoreRows<T, kVectors>;
  using Vector = AlignedVector<T, Rows::kSize>;
  static constexpr int kSize = Rows::kSize;
  Rows rows;
  Labels<A> labels;
  A smoothing;
  const double* weight_sum;  // null: all weights are 1
  int64_t per_row;           // 0: one upstream gradient for all rows
  const T* scores;
  const A* upstream;
  T* gradient;
  RowLosses<A> losses;

  template <typename Group>
  GRADLOOM_DEVICE void operator()(const Group& group, int64_t row) const {
    const int64_t label = labels.At(row, group.thread() == 0), start = row * rows.stride, classes = rows.classes;
    if (label < 0) {
      rows.ForEachPlace(group, [&](int64_t first) { StoreWhole(Vector{}, gradient + start + first); });
      if (group.thread() == 0) losses.Set(row, 0, 0);
      return;
    }
    const A at_label = static_cast<A>(scores[start + label]);
    ExpSum<A, E> all;
    rows.ForEach(group, scores + start, [&](int64_t first, const Vector& vector) {
      A x[kSize];
      for (int k = 0; k < kSize; ++k) x[k] = static_cast<A>(vector.at[k]);
      for (int k = 1; k < kSize && first + kSize > classes; ++k) {
        if (first + k >= classes) x[k] = -std::numeric_limits<A>::infinity();
      }
      all.AddAll(x);
    });
    all = JoinedOver(group, all);
    const A divisor = all.Divisor(), log_sum = static_cast<A>(::log(divisor)), shift = all.largest;
    const A own_weight = labels.Weight(label), d_loss = upstream[row * per_row];
    const A spread = smoothing / static_cast<A>(classes), own = (1 - smoothing) * own_weight;
    const A weights = weight_sum == nullptr ? static_cast<A>(classes) : static_cast<A>(*weight_sum);
    const A scale = d_loss * (own + spread * weights) / divisor;
    group.Sync();  // all threads have read the label's score, which the gradient may overwrite
    const A each = d_loss * spread;
    A smooth = 0;
    if (smoothing == 0) {
      rows.ForEachBackwards(group, scores + start, [&](int64_t first, const Vector& vector) {
        A values[kSize];
        for (int k = 0; k < kSize; ++k) values[k] = E{}(static_cast<A>(vector.at[k]), shift) * scale;
        Store(values, first, gradient + start);
      });
    } else {
      rows.ForEachBackwards(group, scores + start, [&](int64_t first, const Vector& vector) {
        A values[kSize];
        for (int k = 0; k < kSize; ++k) {
          const A x = static_cast<A>(vector.at[k]), weight = k == 0 || first + k < classes ? labels.Weight(first + k) : A(0);
          if (weight != 0) smooth += weight * (x - shift - log_sum);
          values[k] = E{}(x, shift) * scale - each * weight;
        }
        Store(values, first, gradient + start);
      });
    }
    // The thread that wrote the vector replaces the element.
    if (label / kSize % group.threads() == group.thread()) {
      gradient[start + label] = static_cast<T>(E{}(at_label, shift) * scale - each * own_weight - d_loss * own);
    }
    if (smoothing != 0) smooth = group.Reduce(smooth, Sum{});
    if (group.thread() != 0) return;
    losses.Set(row, static_cast<double>(-own * (at_label - shift - log_sum) - spread * smooth), static_cast<double>(own_weight));
  }

 private:
  // Elements after the last class are padding, which is zero.
  GRADLOOM_DEVICE void Store(A (&values)[kSize], int64_t first, T* row) const {
    for (int k = 1; k < kSize && first + kSize > rows.classes; ++k) {
      if (first + k >= rows.classes) values[k] = 0;
    }
    Vector result;
    for (int k = 0; k < kSize; ++k) result.at[k] = static_cast<T>(values[k]);
    StoreWhole(result, row + first);
  }
};

std::unique_ptr<Kernel> MakeCrossEntropyTraining(const KernelCall& call, const KernelSite& site) {
  const int64_t rows = call.inputs[0].shape[0], classes = call.inputs[0].shape[1], per_row = call.inputs[3].shape.rank();
  const int64_t stride = *RowStrideOf(call.inputs[0]);
  const LabelRule rule(call, site, 1, classes, kIgnored);
  const double smoothing = call.attributes.Float("label_smoothing", 0);
  const bool has_loss = Has(call.outputs, 0);
  return WithScores(call.inputs[0], [&]<typename T, bool kVectors>(std::type_identity<T>, std::bool_constant<kVectors>) {
    using A = Arithmetic<T>;
    return MakeKernel([=](const Launch& l) {
      const Labels<A> labels(rule, l, 1);
      auto* const terms = static_cast<Terms*>(l.scratch);
      auto* const sum = rule.weighted && smoothing != 0 ? reinterpret_cast<double*>(terms + rows + cuda_rows::kMaxLossParts) : nullptr;
      if (sum != nullptr) SumWeights(classes, labels.weights, sum, l.stream);
      const CrossEntropyTrainingLine<T, kVectors> line{{classes, stride}, labels,      static_cast<A>(smoothing), sum, per_row, l.In<T>(0),
                                                       l.In<A>(3),        l.Out<T>(1), {terms, nullptr}};
      if (classes > kLongRow) {
        ForEachLongRow(rows, l.stream, line);
      } else {
        ForEachRowOf(rows, classes, 1, l.stream, line);
      }
      if (has_loss) SumTerms<A>(rows, terms, false, l.Out<A>(0), nullptr, l.stream);
    });
  });
}

constexpr CudaKernel kLossTrainingKernels[] = {{"cuda.gradloom.CrossEntropyTraining", MakeCrossEntropyTraining}};

}  // namespace

std::span<const CudaKernel> LossTrainingKernels() { return kLossTrainingKernels; }

}  // namespace gradloom::cuda
