// Classification losses over rows [M, C] and their gradients, one pass each. Sums over rows are in double,
// in row order.
#include <cmath>
#include <string>

#include "kernels/reference/families.h"
#include "runtime/base/dispatch.h"

namespace gradloom {
namespace {

// Labels and class weights of a call: what every function below needs.
struct Rows {
  int64_t rows = 0, classes = 0, ignore_index = -100;
  const int64_t* target = nullptr;
  const void* weight = nullptr;  // of the call's floating type, or null

  // The label of a row, or -1 where the row is ignored.
  int64_t Label(int64_t row) const {
    const int64_t label = target[row];
    if (label == ignore_index) return -1;
    if (label < 0 || label >= classes) {
      throw Error(ErrorCode::kData,
                  "row " + std::to_string(row) + " has label " + std::to_string(label) + ", expected 0 to " + std::to_string(classes - 1),
                  "", "labels count from 0; a label to leave out is ignore_index (here " + std::to_string(ignore_index) + ")");
    }
    return label;
  }

  template <typename T>
  T Weight(int64_t label) const {
    return weight == nullptr ? T(1) : static_cast<const T*>(weight)[label];
  }

  template <typename T>
  double WeightSum() const {
    if (weight == nullptr) return static_cast<double>(classes);
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += static_cast<const T*>(weight)[c];
    return sum;
  }
};

Rows RowsOf(const KernelCall& call, const void* const* inputs, const Shape& shape, size_t target, size_t weight) {
  return {shape[0], shape[1], call.attributes.Int("ignore_index", -100), static_cast<const int64_t*>(inputs[target]),
          weight < call.inputs.size() && call.inputs[weight].present() ? inputs[weight] : nullptr};
}

template <typename T>
void LogSoftmaxRow(const T* x, int64_t n, T* y) {
  T largest = x[0];
  for (int64_t c = 1; c < n; ++c) largest = x[c] > largest ? x[c] : largest;
  double sum = 0;
  for (int64_t c = 0; c < n; ++c) sum += std::exp(x[c] - largest);
  const T shift = largest + static_cast<T>(std::log(sum));
  for (int64_t c = 0; c < n; ++c) y[c] = x[c] - shift;
}

// With smoothing e, weights w and class t of a row:
//   loss = -(1 - e) w[t] log p[t] - e / C * sum over c of w[c] log p[c].
void CrossEntropy(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloat(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const Rows rows = RowsOf(call, inputs, call.inputs[0].shape, 1, 2);
    const double smoothing = call.attributes.Float("label_smoothing", 0);
    const T* logits = static_cast<const T*>(inputs[0]);
    T* log_prob = static_cast<T*>(outputs[2]);
    double loss = 0, weights = 0;
    for (int64_t row = 0; row < rows.rows; ++row, logits += rows.classes, log_prob += rows.classes) {
      LogSoftmaxRow(logits, rows.classes, log_prob);
      const int64_t label = rows.Label(row);
      if (label < 0) continue;
      const T weight = rows.Weight<T>(label);
      weights += weight;
      loss -= (1 - smoothing) * weight * log_prob[label];
      if (smoothing == 0) continue;
      double all = 0;
      for (int64_t c = 0; c < rows.classes; ++c) all += static_cast<double>(rows.Weight<T>(c)) * log_prob[c];
      loss -= smoothing / static_cast<double>(rows.classes) * all;
    }
    *static_cast<T*>(outputs[0]) = static_cast<T>(loss);
    *static_cast<T*>(outputs[1]) = static_cast<T>(weights);
  });
}

void CrossEntropyGrad(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloat(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const Rows rows = RowsOf(call, inputs, call.inputs[0].shape, 1, 2);
    const double smoothing = call.attributes.Float("label_smoothing", 0);
    const T spread = static_cast<T>(smoothing / static_cast<double>(rows.classes));
    const double weight_sum = rows.WeightSum<T>();
    const T* log_prob = static_cast<const T*>(inputs[0]);
    const T* upstream = static_cast<const T*>(inputs[3]);
    const int64_t per_row = call.inputs[3].shape.rank();  // 0: one factor for all rows
    T* gradient = static_cast<T*>(outputs[0]);
    for (int64_t row = 0; row < rows.rows; ++row, log_prob += rows.classes, gradient += rows.classes) {
      const int64_t label = rows.Label(row);
      if (label < 0) {
        for (int64_t c = 0; c < rows.classes; ++c) gradient[c] = T(0);
        continue;
      }
      const T up = upstream[row * per_row];
      const double own = (1 - smoothing) * static_cast<double>(rows.Weight<T>(label));
      const T total = static_cast<T>(own + static_cast<double>(spread) * weight_sum) * up;
      for (int64_t c = 0; c < rows.classes; ++c) gradient[c] = std::exp(log_prob[c]) * total;
      gradient[label] -= static_cast<T>(own) * up;
      if (smoothing == 0) continue;
      for (int64_t c = 0; c < rows.classes; ++c) gradient[c] -= spread * rows.Weight<T>(c) * up;
    }
  });
}

void Nll(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloat(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const Rows rows = RowsOf(call, inputs, call.inputs[0].shape, 1, 2);
    const T* log_prob = static_cast<const T*>(inputs[0]);
    double loss = 0, weights = 0;
    for (int64_t row = 0; row < rows.rows; ++row) {
      const int64_t label = rows.Label(row);
      if (label < 0) continue;
      const double weight = rows.Weight<T>(label);
      weights += weight;
      loss -= weight * log_prob[row * rows.classes + label];
    }
    *static_cast<T*>(outputs[0]) = static_cast<T>(loss);
    *static_cast<T*>(outputs[1]) = static_cast<T>(weights);
  });
}

void NllGrad(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloat(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const Rows rows = RowsOf(call, inputs, call.outputs[0].shape, 0, 1);
    const T* upstream = static_cast<const T*>(inputs[2]);
    const int64_t per_row = call.inputs[2].shape.rank();
    T* gradient = static_cast<T*>(outputs[0]);
    for (int64_t row = 0; row < rows.rows; ++row, gradient += rows.classes) {
      for (int64_t c = 0; c < rows.classes; ++c) gradient[c] = T(0);
      const int64_t label = rows.Label(row);
      if (label >= 0) gradient[label] = -rows.Weight<T>(label) * upstream[row * per_row];
    }
  });
}

constexpr ReferenceKernel kKernels[] = {
    {"CrossEntropy", "gradloom", CrossEntropy},
    {"CrossEntropyGrad", "gradloom", CrossEntropyGrad},
    {"Nll", "gradloom", Nll},
    {"NllGrad", "gradloom", NllGrad},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceLoss() { return kKernels; }

}  // namespace gradloom
