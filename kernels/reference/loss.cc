// Classification losses over rows [M, C] and their gradients, in one pass each. Sums over rows are in double, in row order.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/catalog/operands.h"
#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"

namespace gradloom {
namespace {

// The labels and class weights of a call, used by every function below.
struct Rows {
  int64_t rows = 0, classes = 0, ignore_index = -100;
  const int64_t* target = nullptr;
  const void* weight = nullptr;  // of the call's floating-point type, or null

  // The label of a row, or -1 if the row is ignored.
  int64_t Label(int64_t row) const {
    const int64_t label = target[row];
    if (label == ignore_index) return -1;
    if (label < 0 || label >= classes) {
      throw Error(
          ErrorCode::kData,
          "row " + std::to_string(row) + " has label " + std::to_string(label) + ", expected 0 to " + std::to_string(classes - 1), "",
          "labels count from 0" + (ignore_index == INT64_MIN ? "" : "; a row to leave out has label " + std::to_string(ignore_index)));
    }
    return label;
  }

  template <typename T>
  double Weight(int64_t label) const {
    return weight == nullptr ? 1.0 : static_cast<double>(static_cast<const T*>(weight)[label]);
  }

  template <typename T>
  double WeightSum() const {
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += Weight<T>(c);
    return sum;
  }
};

Rows RowsOf(const KernelCall& call, const void* const* inputs, const Shape& shape, size_t target, size_t weight) {
  return {shape[0], shape[1], call.attributes.Int("ignore_index", -100), static_cast<const int64_t*>(inputs[target]),
          HasInput(call, weight) ? inputs[weight] : nullptr};
}

// Log-probabilities of n scores that are `step` apart; y may be x. Does not overflow for finite scores.
template <typename T, typename O>
void LogSoftmax(const T* x, int64_t n, int64_t step, O* y) {
  if (n == 0) return;
  using A = Arithmetic<T>;
  A largest = x[0];
  for (int64_t c = 1; c < n; ++c) largest = std::max(largest, static_cast<A>(x[c * step]));
  double sum = 0;
  for (int64_t c = 0; c < n; ++c) sum += std::exp(static_cast<A>(x[c * step]) - largest);
  const A log_sum = static_cast<A>(std::log(sum));
  for (int64_t c = 0; c < n; ++c) y[c * step] = static_cast<O>(static_cast<A>(x[c * step]) - largest - log_sum);
}

// With smoothing e, weights w and class t of a row:
//   loss = -(1 - e) w[t] log p[t] - e / C * sum over c of w[c] log p[c].
void CrossEntropy(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const Rows rows = RowsOf(call, inputs, call.inputs[0].shape, 1, 2);
    const double smoothing = call.attributes.Float("label_smoothing", 0);
    const T* logits = In<T>(inputs, 0);
    T* log_prob = Out<T>(outputs, 2);
    double loss = 0, weights = 0;
    for (int64_t row = 0; row < rows.rows; ++row, logits += rows.classes, log_prob += rows.classes) {
      LogSoftmax(logits, rows.classes, 1, log_prob);
      const int64_t label = rows.Label(row);
      if (label < 0) continue;
      const double weight = rows.Weight<T>(label);
      weights += weight;
      loss -= (1 - smoothing) * weight * static_cast<double>(log_prob[label]);
      if (smoothing == 0) continue;
      double all = 0;
      for (int64_t c = 0; c < rows.classes; ++c) all += rows.Weight<T>(c) * static_cast<double>(log_prob[c]);
      loss -= smoothing / static_cast<double>(rows.classes) * all;
    }
    *Out<T>(outputs, 0) = static_cast<T>(loss);
    *Out<T>(outputs, 1) = static_cast<T>(weights);
  });
}

void CrossEntropyGrad(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    using A = Arithmetic<T>;
    const Rows rows = RowsOf(call, inputs, call.inputs[0].shape, 1, 2);
    const double smoothing = call.attributes.Float("label_smoothing", 0), spread = smoothing / static_cast<double>(rows.classes);
    const double weight_sum = rows.WeightSum<T>();
    const T *log_prob = In<T>(inputs, 0), *upstream = In<T>(inputs, 3);
    const int64_t per_row = call.inputs[3].shape.rank();  // 0: one upstream gradient for all rows
    T* gradient = Out<T>(outputs, 0);
    for (int64_t row = 0; row < rows.rows; ++row, log_prob += rows.classes, gradient += rows.classes) {
      const int64_t label = rows.Label(row);
      if (label < 0) {
        for (int64_t c = 0; c < rows.classes; ++c) gradient[c] = T(0);
        continue;
      }
      const double d_loss = static_cast<double>(upstream[row * per_row]), own = (1 - smoothing) * rows.Weight<T>(label) * d_loss;
      const A total = static_cast<A>(own + spread * weight_sum * d_loss), at_label = static_cast<A>(own),
              each = static_cast<A>(spread * d_loss);
      for (int64_t c = 0; c < rows.classes; ++c) gradient[c] = static_cast<T>(std::exp(static_cast<A>(log_prob[c])) * total);
      gradient[label] = static_cast<T>(static_cast<A>(gradient[label]) - at_label);
      if (smoothing == 0) continue;
      for (int64_t c = 0; c < rows.classes; ++c) {
        gradient[c] = static_cast<T>(static_cast<A>(gradient[c]) - each * static_cast<A>(rows.Weight<T>(c)));
      }
    }
  });
}

// The type of everything but the scores, of type T.
template <typename T>
using SumsOf = std::conditional_t<sizeof(T) == 2, float, T>;

// CrossEntropy whose last output is log(sum of exp(scores)) of each row.
void CrossEntropyLogSum(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    using W = SumsOf<T>;
    const Rows rows = RowsOf(call, inputs, call.inputs[0].shape, 1, 2);
    const double smoothing = call.attributes.Float("label_smoothing", 0);
    const T* scores = In<T>(inputs, 0);
    double loss = 0, weights = 0;
    for (int64_t row = 0; row < rows.rows; ++row, scores += rows.classes) {
      W largest = static_cast<W>(scores[0]);
      for (int64_t c = 1; c < rows.classes; ++c) largest = std::max(largest, static_cast<W>(scores[c]));
      double sum = 0;
      for (int64_t c = 0; c < rows.classes; ++c) sum += std::exp(static_cast<W>(scores[c]) - largest);
      const W log_sum = largest + static_cast<W>(std::log(sum));
      if (Has(call.outputs, 2)) Out<W>(outputs, 2)[row] = log_sum;
      const auto log_prob = [&](int64_t c) { return static_cast<double>(static_cast<W>(scores[c]) - log_sum); };
      const int64_t label = rows.Label(row);
      if (label < 0) continue;
      const double weight = rows.Weight<W>(label);
      weights += weight;
      loss -= (1 - smoothing) * weight * log_prob(label);
      if (smoothing == 0) continue;
      double all = 0;
      for (int64_t c = 0; c < rows.classes; ++c) all += rows.Weight<W>(c) * log_prob(c);
      loss -= smoothing / static_cast<double>(rows.classes) * all;
    }
    *Out<W>(outputs, 0) = static_cast<W>(loss);
    *Out<W>(outputs, 1) = static_cast<W>(weights);
  });
}

void CrossEntropyLogSumGrad(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    using W = SumsOf<T>;
    const Rows rows = RowsOf(call, inputs, call.inputs[0].shape, 2, 3);
    const double smoothing = call.attributes.Float("label_smoothing", 0), spread = smoothing / static_cast<double>(rows.classes);
    const double weight_sum = rows.WeightSum<W>();
    const T* scores = In<T>(inputs, 0);
    const W *log_sum = In<W>(inputs, 1), *upstream = In<W>(inputs, 4);
    const int64_t per_row = call.inputs[4].shape.rank();  // 0: one upstream gradient for all rows
    T* gradient = Out<T>(outputs, 0);
    for (int64_t row = 0; row < rows.rows; ++row, scores += rows.classes, gradient += rows.classes) {
      const int64_t label = rows.Label(row);
      const double d_loss = label < 0 ? 0 : static_cast<double>(upstream[row * per_row]);
      const double own = label < 0 ? 0 : (1 - smoothing) * rows.Weight<W>(label) * d_loss;
      const W total = static_cast<W>(own + spread * weight_sum * d_loss);
      for (int64_t c = 0; c < rows.classes; ++c) {
        W value = 0;
        if (label >= 0) value = std::exp(static_cast<W>(scores[c]) - log_sum[row]) * total;
        if (label >= 0 && smoothing != 0) value -= static_cast<W>(spread * d_loss) * static_cast<W>(rows.Weight<W>(c));
        if (c == label) value -= static_cast<W>(own);
        gradient[c] = static_cast<T>(value);
      }
    }
  });
}

void CrossEntropyTraining(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    using W = SumsOf<T>;
    const Shape& shape = call.inputs[0].shape;
    std::vector<W> log_sum(static_cast<size_t>(shape[0]));
    W loss = 0, weights = 0;
    const OperandType sum{call.inputs[3].dtype, Shape{}, {}};
    KernelCall forward = call, backward = call;
    forward.inputs.pop_back();
    forward.outputs = {sum, sum, {sum.dtype, Shape{shape[0]}, {}}};
    void* const results[] = {&loss, &weights, log_sum.data()};
    CrossEntropyLogSum(forward, inputs, results);
    backward.inputs.insert(backward.inputs.begin() + 1, forward.outputs[2]);
    backward.outputs = {call.inputs[0]};
    const void* const operands[] = {inputs[0], log_sum.data(), inputs[1], inputs[2], inputs[3]};
    CrossEntropyLogSumGrad(backward, operands, outputs + 1);
    if (Has(call.outputs, 0)) *Out<W>(outputs, 0) = loss;
  });
}

void LabelWeights(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloating(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const bool weighted = call.inputs.size() > 1 && call.inputs[1].present();
    const int64_t ignored = call.attributes.Int("ignore_index", -100), classes = weighted ? call.inputs[1].shape[0] : 0;
    double sum = 0;
    for (int64_t row = 0; row < call.inputs[0].shape[0]; ++row) {
      const int64_t label = In<int64_t>(inputs, 0)[row];
      if (label == ignored || (weighted && (label < 0 || label >= classes))) continue;
      sum += weighted ? static_cast<double>(In<T>(inputs, 1)[label]) : 1.0;
    }
    *Out<T>(outputs, 0) = static_cast<T>(sum);
  });
}

void Nll(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const Rows rows = RowsOf(call, inputs, call.inputs[0].shape, 1, 2);
    const T* log_prob = In<T>(inputs, 0);
    double loss = 0, weights = 0;
    for (int64_t row = 0; row < rows.rows; ++row) {
      const int64_t label = rows.Label(row);
      if (label < 0) continue;
      const double weight = rows.Weight<T>(label);
      weights += weight;
      loss -= weight * static_cast<double>(log_prob[row * rows.classes + label]);
    }
    *Out<T>(outputs, 0) = static_cast<T>(loss);
    *Out<T>(outputs, 1) = static_cast<T>(weights);
  });
}

void NllGrad(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloating(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const Rows rows = RowsOf(call, inputs, call.outputs[0].shape, 0, 1);
    const T* upstream = In<T>(inputs, 2);
    const int64_t per_row = call.inputs[2].shape.rank();
    T* gradient = Out<T>(outputs, 0);
    for (int64_t row = 0; row < rows.rows; ++row, gradient += rows.classes) {
      for (int64_t c = 0; c < rows.classes; ++c) gradient[c] = T(0);
      const int64_t label = rows.Label(row);
      if (label >= 0) gradient[label] = static_cast<T>(-rows.Weight<T>(label) * static_cast<double>(upstream[row * per_row]));
    }
  });
}

// ONNX's losses over scores [N, C, d...]: the loss of each label, their sum, or their weighted mean. `log_prob` has the layout of the
// scores.
template <typename T, typename S>
void OnnxLoss(const KernelCall& call, const void* const* inputs, void* const* outputs, const S* log_prob) {
  const Shape& shape = call.inputs[0].shape;
  const int64_t points = Product(shape, 2, shape.rank());
  const std::vector<int64_t> labels = IntValues(InputView(call, inputs, 1));
  Rows rows = RowsOf(call, inputs, Shape{static_cast<int64_t>(labels.size()), shape[1]}, 1, 2);
  rows.target = labels.data();
  // Without an `ignore_index`, ONNX ignores no label, so this is a label that cannot occur.
  rows.ignore_index = call.attributes.Int("ignore_index", INT64_MIN);
  const std::string reduction = call.attributes.String("reduction", "mean");
  double loss = 0, weights = 0;
  for (int64_t row = 0; row < rows.rows; ++row) {
    const int64_t label = rows.Label(row);
    const double weight = label < 0 ? 0 : rows.Weight<T>(label);
    const int64_t image = row / points, point = row % points;
    const double own = label < 0 ? 0 : -weight * static_cast<double>(log_prob[(image * rows.classes + label) * points + point]);
    if (reduction == "none") Out<T>(outputs, 0)[row] = static_cast<T>(own);
    loss += own;
    weights += weight;
  }
  if (reduction == "sum") *Out<T>(outputs, 0) = static_cast<T>(loss);
  if (reduction == "mean") *Out<T>(outputs, 0) = static_cast<T>(loss / weights);
}

void NegativeLogLikelihoodLoss(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) { OnnxLoss<T>(call, inputs, outputs, In<T>(inputs, 0)); });
}

void SoftmaxCrossEntropyLoss(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Shape& shape = call.inputs[0].shape;
  const int64_t points = Product(shape, 2, shape.rank()), classes = shape[1];
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    std::vector<Arithmetic<T>> log_prob(static_cast<size_t>(shape.elements()));
    for (int64_t n = 0; n < shape[0]; ++n) {
      for (int64_t p = 0; p < points; ++p) {
        const int64_t start = n * classes * points + p;
        LogSoftmax(In<T>(inputs, 0) + start, classes, points, log_prob.data() + start);
      }
    }
    OnnxLoss<T>(call, inputs, outputs, log_prob.data());
    if (!Has(call.outputs, 1)) return;
    for (size_t i = 0; i < log_prob.size(); ++i) Out<T>(outputs, 1)[i] = static_cast<T>(log_prob[i]);
  });
}

constexpr ReferenceKernel kKernels[] = {
    {"CrossEntropy", "gradloom", CrossEntropy},
    {"CrossEntropyGrad", "gradloom", CrossEntropyGrad},
    {"CrossEntropyLogSum", "gradloom", CrossEntropyLogSum},
    {"CrossEntropyLogSumGrad", "gradloom", CrossEntropyLogSumGrad},
    {"CrossEntropyTraining", "gradloom", CrossEntropyTraining},
    {"LabelWeights", "gradloom", LabelWeights},
    {"Nll", "gradloom", Nll},
    {"NllGrad", "gradloom", NllGrad},
    {"NegativeLogLikelihoodLoss", "", NegativeLogLikelihoodLoss},
    {"SoftmaxCrossEntropyLoss", "", SoftmaxCrossEntropyLoss},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceLoss() { return kKernels; }

}  // namespace gradloom
