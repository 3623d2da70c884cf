// Classification losses over lines of classes, and their gradients. A group of threads processes a line; the losses of the lines are summed
// in double, in an order that depends only on their number.
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "kernels/cuda/exp_sum.cuh"
#include "kernels/cuda/lines.cuh"
#include "kernels/cuda/loss_rows.cuh"
#include "kernels/cuda/operands.cuh"

namespace gradloom::cuda {
namespace {

// With smoothing e, weights w and class t of a line: -(1 - e) w[t] log p[t] - e / C * sum over c of w[c] log p[c]. Reads the scores once
// for their maximum and sum, and once more if more than log p[t] is needed.
template <typename T>
struct CrossEntropyLine {
  using A = Arithmetic<T>;
  Lines lines;
  Labels<T> labels;
  A smoothing;
  const T* scores;
  T* log_prob;  // may be null
  RowLosses<T> losses;

  template <typename Group>
  GRADLOOM_DEVICE void operator()(const Group& group, int64_t row) const {
    const int64_t start = lines.start(row), label = labels.At(row, group.thread() == 0);
    const A at_label = label < 0 ? A(0) : static_cast<A>(scores[start + label * lines.step]);
    ExpSum<A> all;
    for (int64_t c = group.thread(); c < lines.extent; c += group.threads()) all.Add(static_cast<A>(scores[start + c * lines.step]));
    all = group.Reduce(all, JoinExpSums{});
    const A log_sum = static_cast<A>(::log(all.Divisor()));
    group.Sync();  // all threads have read the label's score, which log_prob may overwrite
    A smooth = 0;
    if (log_prob != nullptr || smoothing != 0) {
      for (int64_t c = group.thread(); c < lines.extent; c += group.threads()) {
        const int64_t place = start + c * lines.step;
        const A value = static_cast<A>(scores[place]) - all.largest - log_sum;
        if (log_prob != nullptr) log_prob[place] = static_cast<T>(value);
        if (smoothing != 0) smooth += labels.Weight(c) * value;
      }
    }
    if (smoothing != 0) smooth = smoothing / static_cast<A>(lines.extent) * group.Reduce(smooth, Sum{});
    if (group.thread() != 0) return;
    if (label < 0) return losses.Set(row, 0, 0);
    const A weight = labels.Weight(label);
    losses.Set(row, static_cast<double>(-(1 - smoothing) * weight * (at_label - all.largest - log_sum) - smooth),
               static_cast<double>(weight));
  }
};

// The same as CrossEntropyLine, with the log of the sum of exponentials in place of all log-probabilities. Scores may have 16 bits.
template <typename T, bool kVectors>
struct CrossEntropyLogSumLine {
  using A = Arithmetic<T>;
  using Rows = ScoreRows<T, kVectors>;
  Rows rows;
  Labels<A> labels;
  A smoothing;
  const T* scores;
  A* log_sums;  // may be null
  RowLosses<A> losses;

  template <typename Group>
  GRADLOOM_DEVICE void operator()(const Group& group, int64_t row) const {
    const int64_t start = row * rows.stride, label = labels.At(row, group.thread() == 0), classes = rows.classes;
    ExpSum<A> all;
    rows.ForEach(group, scores + start, [&](int64_t first, const AlignedVector<T, Rows::kSize>& vector) {
      A x[Rows::kSize];
      for (int k = 0; k < Rows::kSize; ++k) x[k] = first + k < classes ? static_cast<A>(vector.at[k]) : -std::numeric_limits<A>::infinity();
      all.AddAll(x);
    });
    all = group.Reduce(all, JoinExpSums{});
    const A log_sum = all.largest + static_cast<A>(::log(all.Divisor()));
    A smooth = 0;
    if (smoothing != 0) {
      for (int64_t c = group.thread(); c < classes; c += group.threads())
        smooth += labels.Weight(c) * (static_cast<A>(scores[start + c]) - log_sum);
      smooth = smoothing / static_cast<A>(classes) * group.Reduce(smooth, Sum{});
    }
    if (group.thread() != 0) return;
    if (log_sums != nullptr) log_sums[row] = log_sum;
    if (label < 0) return losses.Set(row, 0, 0);
    const A weight = labels.Weight(label);
    losses.Set(row, static_cast<double>(-(1 - smoothing) * weight * (static_cast<A>(scores[start + label]) - log_sum) - smooth),
               static_cast<double>(weight));
  }
};

// The losses for scores that are log-probabilities already.
template <typename T>
void PickLosses(const Lines& lines, const Labels<T>& labels, const T* log_prob, const RowLosses<T>& losses, cudaStream_t stream) {
  ForEachElement(
      lines.count, stream, GRADLOOM_ON_DEVICE(int64_t row) {
        const int64_t label = labels.At(row, true);
        if (label < 0) return losses.Set(row, 0, 0);
        const double weight = static_cast<double>(labels.Weight(label));
        losses.Set(row, -weight * static_cast<double>(log_prob[lines.start(row) + label * lines.step]), weight);
      });
}

// gradloom.CrossEntropy and gradloom.Nll: the sums of losses and weights, and all log-probabilities.
template <bool kSoftmax>
std::unique_ptr<Kernel> MakeSums(const KernelCall& call, const KernelSite& site) {
  const Lines lines(call, call.inputs[0].shape, 1);
  const LabelRule rule(call, site, 1, lines.extent, kIgnored);
  const double smoothing = call.attributes.Float("label_smoothing", 0);
  const OperandCounts operands(call);
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) {
      const Labels<T> labels(rule, l, 1);
      const RowLosses<T> losses{static_cast<Terms*>(l.scratch), nullptr};
      if constexpr (kSoftmax) {
        const CrossEntropyLine<T> line{lines, labels, static_cast<Arithmetic<T>>(smoothing), l.In<T>(0), operands.Out<T>(l, 2), losses};
        ForEachRowOf(lines.count, lines.extent, lines.step, l.stream, line);
      } else {
        PickLosses(lines, labels, l.In<T>(0), losses, l.stream);
      }
      SumTerms(lines.count, losses.terms, false, operands.Out<T>(l, 0), operands.Out<T>(l, 1), l.stream);
    });
  });
}

std::unique_ptr<Kernel> MakeCrossEntropyLogSum(const KernelCall& call, const KernelSite& site) {
  const int64_t rows = call.inputs[0].shape[0], classes = call.inputs[0].shape[1], stride = *RowStrideOf(call.inputs[0]);
  const LabelRule rule(call, site, 1, classes, kIgnored);
  const double smoothing = call.attributes.Float("label_smoothing", 0);
  const OperandCounts operands(call);
  return WithScores(call.inputs[0], [&]<typename T, bool kVectors>(std::type_identity<T>, std::bool_constant<kVectors>) {
    using A = Arithmetic<T>;
    return MakeKernel([=](const Launch& l) {
      const RowLosses<A> losses{static_cast<Terms*>(l.scratch), nullptr};
      const CrossEntropyLogSumLine<T, kVectors> line{{classes, stride}, Labels<A>(rule, l, 1), static_cast<A>(smoothing),
                                                     l.In<T>(0),        operands.Out<A>(l, 2), losses};
      ForEachRowOf(rows, classes, 1, l.stream, line);
      SumTerms(rows, losses.terms, false, operands.Out<A>(l, 0), operands.Out<A>(l, 1), l.stream);
    });
  });
}

// ONNX's losses over scores [N, C, d...]: the loss of each label, their sum, or their weighted mean.
template <bool kSoftmax>
std::unique_ptr<Kernel> MakeOnnxLoss(const KernelCall& call, const KernelSite& site) {
  const Lines lines(call, call.inputs[0].shape, 1);
  // Without an `ignore_index`, ONNX ignores no label, so this is a label that cannot occur.
  const LabelRule rule(call, site, 1, lines.extent, INT64_MIN);
  const std::string reduction = call.attributes.String("reduction", "mean");
  const bool each = reduction == "none", mean = reduction == "mean";
  const OperandCounts operands(call);
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) {
      const Labels<T> labels(rule, l, 1);
      T* const loss = operands.Out<T>(l, 0);
      const RowLosses<T> losses{each ? nullptr : static_cast<Terms*>(l.scratch), each ? loss : nullptr};
      if constexpr (kSoftmax) {
        const CrossEntropyLine<T> line{lines, labels, 0, l.In<T>(0), operands.Out<T>(l, 1), losses};
        ForEachRowOf(lines.count, lines.extent, lines.step, l.stream, line);
      } else {
        PickLosses(lines, labels, l.In<T>(0), losses, l.stream);
      }
      if (!each) SumTerms<T>(lines.count, losses.terms, mean, loss, nullptr, l.stream);
    });
  });
}

template <typename T>
struct CrossEntropyGradLine {
  using A = Arithmetic<T>;
  int64_t classes;
  Labels<T> labels;
  A smoothing;
  const double* weight_sum;  // null: all weights are 1
  int64_t per_row;           // 0: one upstream gradient for all rows
  const T* log_prob;
  const T* upstream;
  T* gradient;

  template <typename Group>
  GRADLOOM_DEVICE void operator()(const Group& group, int64_t row) const {
    const int64_t label = labels.At(row, group.thread() == 0), start = row * classes;
    const A d_loss = static_cast<A>(upstream[row * per_row]), spread = smoothing / static_cast<A>(classes) * d_loss;
    const A own = label < 0 ? A(0) : (1 - smoothing) * labels.Weight(label) * d_loss;
    const A all = own + spread * (weight_sum == nullptr ? static_cast<A>(classes) : static_cast<A>(*weight_sum));
    for (int64_t c = group.thread(); c < classes; c += group.threads()) {
      A value = 0;
      if (label >= 0) {
        value = static_cast<A>(::exp(static_cast<A>(log_prob[start + c]))) * all;
        if (smoothing != 0) value -= spread * labels.Weight(c);
        if (c == label) value -= own;
      }
      gradient[start + c] = static_cast<T>(value);
    }
  }
};

std::unique_ptr<Kernel> MakeCrossEntropyGrad(const KernelCall& call, const KernelSite& site) {
  const int64_t rows = call.inputs[0].shape[0], classes = call.inputs[0].shape[1], per_row = call.inputs[3].shape.rank();
  const LabelRule rule(call, site, 1, classes, kIgnored);
  const double smoothing = call.attributes.Float("label_smoothing", 0);
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) {
      const Labels<T> labels(rule, l, 1);
      double* const sum = rule.weighted && smoothing != 0 ? static_cast<double*>(l.scratch) : nullptr;
      if (sum != nullptr) SumWeights(classes, labels.weights, sum, l.stream);
      const CrossEntropyGradLine<T> line{classes,    labels,     static_cast<Arithmetic<T>>(smoothing), sum, per_row, l.In<T>(0),
                                         l.In<T>(3), l.Out<T>(0)};
      ForEachRowOf(rows, classes, 1, l.stream, line);
    });
  });
}

template <typename T, bool kVectors>
struct CrossEntropyLogSumGradLine {
  using A = Arithmetic<T>;
  using Rows = ScoreRows<T, kVectors>;
  Rows rows;
  Labels<A> labels;
  A smoothing;
  const double* weight_sum;  // null: all weights are 1
  int64_t per_row;           // 0: one upstream gradient for all rows
  const T* scores;
  const A *log_sums, *upstream;
  T* gradient;

  template <typename Group>
  GRADLOOM_DEVICE void operator()(const Group& group, int64_t row) const {
    const int64_t label = labels.At(row, group.thread() == 0), start = row * rows.stride, classes = rows.classes;
    const A d_loss = static_cast<A>(upstream[row * per_row]), spread = smoothing / static_cast<A>(classes) * d_loss;
    const A own = label < 0 ? A(0) : (1 - smoothing) * labels.Weight(label) * d_loss, log_sum = log_sums[row];
    const A all = own + spread * (weight_sum == nullptr ? static_cast<A>(classes) : static_cast<A>(*weight_sum));
    rows.ForEach(group, scores + start, [&](int64_t first, const AlignedVector<T, Rows::kSize>& vector) {
      AlignedVector<T, Rows::kSize> result;
      for (int k = 0; k < Rows::kSize; ++k) {
        const int64_t c = first + k;
        A value = 0;
        if (label >= 0 && c < classes) {
          value = static_cast<A>(::exp(static_cast<A>(vector.at[k]) - log_sum)) * all;
          if (smoothing != 0) value -= spread * labels.Weight(c);
          if (c == label) value -= own;
        }
        result.at[k] = static_cast<T>(value);
      }
      StoreWhole(result, gradient + start + first);
    });
  }
};

std::unique_ptr<Kernel> MakeCrossEntropyLogSumGrad(const KernelCall& call, const KernelSite& site) {
  const int64_t rows = call.inputs[0].shape[0], classes = call.inputs[0].shape[1], per_row = call.inputs[4].shape.rank();
  const int64_t stride = *RowStrideOf(call.inputs[0]);
  const LabelRule rule(call, site, 2, classes, kIgnored);
  const double smoothing = call.attributes.Float("label_smoothing", 0);
  return WithScores(call.inputs[0], [&]<typename T, bool kVectors>(std::type_identity<T>, std::bool_constant<kVectors>) {
    using A = Arithmetic<T>;
    return MakeKernel([=](const Launch& l) {
      const Labels<A> labels(rule, l, 2);
      double* const sum = rule.weighted && smoothing != 0 ? static_cast<double*>(l.scratch) : nullptr;
      if (sum != nullptr) SumWeights(classes, labels.weights, sum, l.stream);
      const CrossEntropyLogSumGradLine<T, kVectors> line{
          {classes, stride}, labels, static_cast<A>(smoothing), sum, per_row, l.In<T>(0), l.In<A>(1), l.In<A>(4), l.Out<T>(0)};
      ForEachRowOf(rows, classes, 1, l.stream, line);
    });
  });
}

// The weight of a row's label, as in the losses, where an invalid label has weight 1, or with class weights 0.
template <typename T>
struct LabelTerms {
  const int64_t* labels;
  const T* weights;  // may be null
  int64_t classes, ignored;

  GRADLOOM_DEVICE Terms operator()(int64_t row) const {
    const int64_t label = labels[row];
    if (label == ignored) return {};
    if (weights == nullptr) return {0, 1};
    return {0, label >= 0 && label < classes ? static_cast<double>(weights[label]) : 0.0};
  }
};

std::unique_ptr<Kernel> MakeLabelWeights(const KernelCall& call, const KernelSite&) {
  const bool weighted = Has(call.inputs, 1);
  const int64_t rows = call.inputs[0].shape[0], classes = weighted ? call.inputs[1].shape[0] : 0;
  const int64_t ignored = call.attributes.Int("ignore_index", kIgnored);
  return WithFloating(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) {
      const LabelTerms<T> terms{l.In<int64_t>(0), weighted ? l.In<T>(1) : nullptr, classes, ignored};
      SumTermsOf(rows, terms, static_cast<Terms*>(l.scratch), LossSums<T>{false, nullptr, l.Out<T>(0)}, l.stream);
    });
  });
}

template <typename T>
struct NllGradLine {
  int64_t classes;
  Labels<T> labels;
  int64_t per_row;
  const T* upstream;
  T* gradient;

  template <typename Group>
  GRADLOOM_DEVICE void operator()(const Group& group, int64_t row) const {
    const int64_t label = labels.At(row, group.thread() == 0);
    const T own = label < 0 ? T(0) : static_cast<T>(-labels.Weight(label) * static_cast<Arithmetic<T>>(upstream[row * per_row]));
    for (int64_t c = group.thread(); c < classes; c += group.threads()) gradient[row * classes + c] = c == label ? own : T(0);
  }
};

std::unique_ptr<Kernel> MakeNllGrad(const KernelCall& call, const KernelSite& site) {
  const int64_t rows = call.outputs[0].shape[0], classes = call.outputs[0].shape[1], per_row = call.inputs[2].shape.rank();
  const LabelRule rule(call, site, 0, classes, kIgnored);
  return WithFloating(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) {
      ForEachRowOf(rows, classes, 1, l.stream, NllGradLine<T>{classes, Labels<T>(rule, l, 0), per_row, l.In<T>(2), l.Out<T>(0)});
    });
  });
}

constexpr CudaKernel kLossKernels[] = {
    {"cuda.gradloom.CrossEntropy", MakeSums<true>},
    {"cuda.gradloom.CrossEntropyGrad", MakeCrossEntropyGrad},
    {"cuda.gradloom.CrossEntropyLogSum", MakeCrossEntropyLogSum},
    {"cuda.gradloom.CrossEntropyLogSumGrad", MakeCrossEntropyLogSumGrad},
    {"cuda.gradloom.LabelWeights", MakeLabelWeights},
    {"cuda.gradloom.Nll", MakeSums<false>},
    {"cuda.gradloom.NllGrad", MakeNllGrad},
    {"cuda.NegativeLogLikelihoodLoss", MakeOnnxLoss<false>},
    {"cuda.SoftmaxCrossEntropyLoss", MakeOnnxLoss<true>},
};

}  // namespace

std::span<const CudaKernel> LossKernels() { return kLossKernels; }

}  // namespace gradloom::cuda
