// Softmax and cross entropy over rows of classes in one pass, their gradient, and both at once.
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/parallel_bytes.h"
#include "runtime/base/checked.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr int64_t kElementsPerThread = 1 << 12;

// Labels and class weights. Threads record invalid labels, and the caller reports them.
class Labels {
 public:
  // `scores` is [rows, classes]. Input `weight` has the class weights, if any; the input before it has the labels.
  Labels(const KernelCall& call, const Shape& scores, size_t weight)
      : classes_(scores[1]), ignore_(call.attributes.Int("ignore_index", -100)), weighted_(HasInput(call, weight)) {}

  void Bind(const void* const* inputs, size_t target) {
    target_ = static_cast<const int64_t*>(inputs[target]);
    weight_ = weighted_ ? static_cast<const float*>(inputs[target + 1]) : nullptr;
    bad_row_.store(-1, std::memory_order_relaxed);
  }

  // The label of a row, or -1 if it is ignored or invalid.
  int64_t At(int64_t row) {
    const int64_t label = target_[row];
    if (label == ignore_) return -1;
    if (label >= 0 && label < classes_) return label;
    bad_row_.store(row, std::memory_order_relaxed);
    return -1;
  }

  double Weight(int64_t label) const { return weight_ == nullptr ? 1.0 : static_cast<double>(weight_[label]); }

  double WeightSum() const {
    if (weight_ == nullptr) return static_cast<double>(classes_);
    double sum = 0;
    for (int64_t c = 0; c < classes_; ++c) sum += static_cast<double>(weight_[c]);
    return sum;
  }

  // Throws Error(kData) if a row had an invalid label.
  void Check() const {
    const int64_t row = bad_row_.load(std::memory_order_relaxed);
    if (row < 0) return;
    throw Error(
        ErrorCode::kData,
        "row " + std::to_string(row) + " has label " + std::to_string(target_[row]) + ", expected 0 to " + std::to_string(classes_ - 1), "",
        "labels count from 0" + (ignore_ == INT64_MIN ? "" : "; a row to leave out has label " + std::to_string(ignore_)));
  }

 private:
  int64_t classes_, ignore_;
  bool weighted_;
  const int64_t* target_ = nullptr;
  const float* weight_ = nullptr;
  std::atomic<int64_t> bad_row_{-1};
};

// The loss and the weight of a row, so that sums are in row order whatever the number of threads.
struct RowTerms {
  double loss, weight;
};

int64_t CrossEntropyScratch(const KernelCall& call) {
  const Shape& shape = call.inputs[0].shape;
  // The log-probabilities need a buffer if they are not an output.
  const int64_t row = HasOutput(call, 2) ? 0 : static_cast<int64_t>(sizeof(float)) * shape.elements();
  return shape[0] * static_cast<int64_t>(sizeof(RowTerms)) + row;
}

// What all forms of the cross entropy have in common: the terms of rows, and their sums.
class CrossEntropySums : public Kernel {
 protected:
  explicit CrossEntropySums(const KernelCall& call)
      : loops_(BestLoops()),
        rows_(call.inputs[0].shape[0]),
        classes_(call.inputs[0].shape[1]),
        smoothing_(call.attributes.Float("label_smoothing", 0)),
        threads_(ThreadsFor(rows_ * classes_, kElementsPerThread, call.threads)),
        labels_(call, call.inputs[0].shape, 2) {
    for (size_t i = 0; i < 3; ++i) wanted_[i] = HasOutput(call, i);
  }

  // loss = -(1 - e) w[t] log p[t] - e / C * sum over c of w[c] log p[c], with smoothing e and class t; none for an ignored row.
  template <typename LogProb>
  RowTerms TermsOf(int64_t row, LogProb&& log_p) {
    const int64_t label = labels_.At(row);
    if (label < 0) return {0, 0};
    const double weight = labels_.Weight(label);
    double loss = -(1 - smoothing_) * weight * static_cast<double>(log_p(label));
    if (smoothing_ != 0) {
      double all = 0;
      for (int64_t c = 0; c < classes_; ++c) all += labels_.Weight(c) * static_cast<double>(log_p(c));
      loss -= smoothing_ / static_cast<double>(classes_) * all;
    }
    return {loss, weight};
  }

  // Throws Error(kData) if a row had an invalid label. Null: the sum is not wanted.
  void StoreSums(const RowTerms* terms, float* loss_sum, float* weight_sum) const {
    labels_.Check();
    double loss = 0, weights = 0;
    for (int64_t row = 0; row < rows_; ++row) {
      loss += terms[row].loss;
      weights += terms[row].weight;
    }
    if (loss_sum != nullptr) *loss_sum = static_cast<float>(loss);
    if (weight_sum != nullptr) *weight_sum = static_cast<float>(weights);
  }

  // Null if the output is absent.
  float* Sum(void* const* outputs, size_t i) const { return wanted_[i] ? static_cast<float*>(outputs[i]) : nullptr; }

  const Loops& loops_;
  int64_t rows_, classes_;
  double smoothing_;
  int threads_;
  Labels labels_;
  bool wanted_[3] = {};
};

class CrossEntropy : public CrossEntropySums {
 public:
  explicit CrossEntropy(const KernelCall& call) : CrossEntropySums(call) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    labels_.Bind(inputs, 1);
    const float* logits = static_cast<const float*>(inputs[0]);
    RowTerms* terms = static_cast<RowTerms*>(scratch);
    float* log_prob = wanted_[2] ? static_cast<float*>(outputs[2]) : reinterpret_cast<float*>(terms + rows_);
    ParallelFor(rows_, threads_, [&](int64_t row) {
      float* log_p = log_prob + row * classes_;
      loops_.log_softmax_row(logits + row * classes_, log_p, classes_);
      terms[row] = TermsOf(row, [&](int64_t c) { return log_p[c]; });
    });
    StoreSums(terms, Sum(outputs, 0), Sum(outputs, 1));
  }
};

class CrossEntropyGrad : public Kernel {
 public:
  explicit CrossEntropyGrad(const KernelCall& call)
      : loops_(BestLoops()),
        rows_(call.inputs[0].shape[0]),
        classes_(call.inputs[0].shape[1]),
        per_row_(call.inputs[3].shape.rank()),
        smoothing_(call.attributes.Float("label_smoothing", 0)),
        threads_(ThreadsFor(rows_ * classes_, kElementsPerThread, call.threads)),
        labels_(call, call.inputs[0].shape, 2) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    labels_.Bind(inputs, 1);
    const float *log_prob = static_cast<const float*>(inputs[0]), *upstream = static_cast<const float*>(inputs[3]);
    float* gradient = static_cast<float*>(outputs[0]);
    const double spread = smoothing_ / static_cast<double>(classes_), weight_sum = smoothing_ == 0 ? 0 : labels_.WeightSum();
    ParallelFor(rows_, threads_, [&](int64_t row) {
      float* to = gradient + row * classes_;
      const int64_t label = labels_.At(row);
      if (label < 0) {
        std::memset(to, 0, static_cast<size_t>(classes_) * sizeof(float));
        return;
      }
      const float d_loss = upstream[row * per_row_];
      const double own = (1 - smoothing_) * labels_.Weight(label);
      loops_.exp_scaled(log_prob + row * classes_, to, classes_, static_cast<float>(own + spread * weight_sum) * d_loss);
      to[label] -= static_cast<float>(own) * d_loss;
      if (smoothing_ == 0) return;
      for (int64_t c = 0; c < classes_; ++c) to[c] -= static_cast<float>(spread * labels_.Weight(c)) * d_loss;
    });
    labels_.Check();
  }

 private:
  const Loops& loops_;
  int64_t rows_, classes_, per_row_;
  double smoothing_;
  int threads_;
  Labels labels_;
};

// A thread's memory for a row of scores as floats. In the kernels below, only the scores and their gradient may have 16 bits.
int64_t RowFloats(const KernelCall& call) { return AlignUp(call.inputs[0].shape[1], 16); }

int64_t LogSumScratch(const KernelCall& call) {
  return AlignUp(call.inputs[0].shape[0] * static_cast<int64_t>(sizeof(RowTerms)), kAlignmentBytes) +
         std::max(call.threads, 1) * RowFloats(call) * static_cast<int64_t>(sizeof(float));
}

class CrossEntropyLogSum : public CrossEntropySums {
 public:
  explicit CrossEntropyLogSum(const KernelCall& call)
      : CrossEntropySums(call), dtype_(call.inputs[0].dtype), row_floats_(RowFloats(call)) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    labels_.Bind(inputs, 1);
    auto* const terms = static_cast<RowTerms*>(scratch);
    auto* const rows = reinterpret_cast<float*>(static_cast<std::byte*>(scratch) +
                                                AlignUp(rows_ * static_cast<int64_t>(sizeof(RowTerms)), kAlignmentBytes));
    const auto log_sum_of_row = loops_.reduce_row[static_cast<size_t>(Reduction::kLogSumExp)];
    ParallelFor(rows_, threads_, [&](int64_t row) {
      float* const scores = rows + ThreadIndex() * row_floats_;
      LoadFloats(loops_, dtype_, inputs[0], row * classes_, classes_, scores);
      const float log_sum = log_sum_of_row(scores, classes_);
      if (wanted_[2]) static_cast<float*>(outputs[2])[row] = log_sum;
      terms[row] = TermsOf(row, [&](int64_t c) { return scores[c] - log_sum; });
    });
    StoreSums(terms, Sum(outputs, 0), Sum(outputs, 1));
  }

 private:
  DType dtype_;
  int64_t row_floats_;
};

// The rows need no buffer if the gradient has 32 bits.
int64_t TrainingScratch(const KernelCall& call) {
  if (call.inputs[0].dtype != DType::kFloat32) return LogSumScratch(call);
  return call.inputs[0].shape[0] * static_cast<int64_t>(sizeof(RowTerms));
}

int64_t LogSumGradScratch(const KernelCall& call) {
  return std::max(call.threads, 1) * RowFloats(call) * static_cast<int64_t>(sizeof(float));
}

class CrossEntropyLogSumGrad : public Kernel {
 public:
  explicit CrossEntropyLogSumGrad(const KernelCall& call)
      : loops_(BestLoops()),
        dtype_(call.inputs[0].dtype),
        rows_(call.inputs[0].shape[0]),
        classes_(call.inputs[0].shape[1]),
        row_floats_(RowFloats(call)),
        per_row_(call.inputs[4].shape.rank()),
        smoothing_(call.attributes.Float("label_smoothing", 0)),
        threads_(ThreadsFor(rows_ * classes_, kElementsPerThread, call.threads)),
        labels_(call, call.inputs[0].shape, 3) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    labels_.Bind(inputs, 2);
    const float *log_sum = static_cast<const float*>(inputs[1]), *upstream = static_cast<const float*>(inputs[4]);
    const double spread = smoothing_ / static_cast<double>(classes_), weight_sum = smoothing_ == 0 ? 0 : labels_.WeightSum();
    ParallelFor(rows_, threads_, [&](int64_t row) {
      float* const values = static_cast<float*>(scratch) + ThreadIndex() * row_floats_;
      const int64_t label = labels_.At(row);
      if (label < 0) {
        loops_.fill(values, 0, classes_);
      } else {
        const float d_loss = upstream[row * per_row_];
        const double own = (1 - smoothing_) * labels_.Weight(label);
        LoadFloats(loops_, dtype_, inputs[0], row * classes_, classes_, values);
        loops_.shift_scale_shift(values, values, classes_, log_sum[row], 1, 0);
        loops_.exp_scaled(values, values, classes_, static_cast<float>(own + spread * weight_sum) * d_loss);
        values[label] -= static_cast<float>(own) * d_loss;
        for (int64_t c = 0; c < classes_ && smoothing_ != 0; ++c) values[c] -= static_cast<float>(spread * labels_.Weight(c)) * d_loss;
      }
      StoreFloats(loops_, dtype_, values, classes_, outputs[0], row * classes_);
    });
    labels_.Check();
  }

 private:
  const Loops& loops_;
  DType dtype_;
  int64_t rows_, classes_, row_floats_, per_row_;
  double smoothing_;
  int threads_;
  Labels labels_;
};

// Each row is read once: the exponentials of the loss, multiplied by one number, are the gradient.
class CrossEntropyTraining : public CrossEntropySums {
 public:
  explicit CrossEntropyTraining(const KernelCall& call)
      : CrossEntropySums(call),
        dtype_(call.inputs[0].dtype),
        row_floats_(RowFloats(call)),
        per_row_(call.inputs[3].shape.rank()),
        weighted_(HasInput(call, 2)),
        spread_(smoothing_ / static_cast<double>(classes_)) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    labels_.Bind(inputs, 1);
    const float* const upstream = static_cast<const float*>(inputs[3]);
    auto* const terms = static_cast<RowTerms*>(scratch);
    auto* const rows = reinterpret_cast<float*>(static_cast<std::byte*>(scratch) +
                                                AlignUp(rows_ * static_cast<int64_t>(sizeof(RowTerms)), kAlignmentBytes));
    const bool narrow = dtype_ != DType::kFloat32;
    const Weights weights{weighted_ ? static_cast<const float*>(inputs[2]) : nullptr, smoothing_ == 0 ? 0 : labels_.WeightSum()};
    ParallelFor(rows_, threads_, [&](int64_t row) {
      const int64_t begin = row * classes_;
      float* const values = narrow ? rows + ThreadIndex() * row_floats_ : static_cast<float*>(outputs[1]) + begin;
      const float* scores = narrow ? values : static_cast<const float*>(inputs[0]) + begin;
      const int64_t label = labels_.At(row);
      if (label < 0) {
        terms[row] = {0, 0};
        loops_.fill(values, 0, classes_);
        if (narrow) StoreFloats(loops_, dtype_, values, classes_, outputs[1], begin);
        return;
      }
      if (narrow) LoadFloats(loops_, dtype_, inputs[0], begin, classes_, values);
      // The gradient may overwrite the scores.
      const double at_label = static_cast<double>(scores[label]), smooth = smoothing_ == 0 ? 0 : WeightedSum(scores, weights.of_classes);
      const float largest = loops_.reduce_row[static_cast<size_t>(Reduction::kMax)](scores, classes_);
      const double sum = Exponentials(scores, values, largest);
      const double log_sum = static_cast<double>(largest) + std::log(sum), weight = labels_.Weight(label);
      double loss = (1 - smoothing_) * weight * (log_sum - at_label);
      if (smoothing_ != 0) loss += spread_ * (weights.sum * log_sum - smooth);
      terms[row] = {loss, weight};
      const float d_loss = upstream[row * per_row_];
      const auto own = static_cast<float>((1 - smoothing_) * weight);
      const float scale = static_cast<float>(((1 - smoothing_) * weight + spread_ * weights.sum) / sum) * d_loss;
      StoreGradient(values, label, scale, own * d_loss, d_loss, weights.of_classes, narrow ? outputs[1] : nullptr, begin);
    });
    StoreSums(terms, Sum(outputs, 0), nullptr);
  }

 private:
  struct Weights {
    const float* of_classes;  // null: all are 1
    double sum;               // with smoothing
  };

  double WeightedSum(const float* scores, const float* weights) const {
    if (weights != nullptr) return loops_.sum_product_centered(weights, scores, classes_, 0);
    return static_cast<double>(loops_.reduce_row[static_cast<size_t>(Reduction::kSum)](scores, classes_));
  }

  // values = exp(scores - shift), which may overwrite the scores; returns the sum.
  double Exponentials(const float* scores, float* values, float shift) const {
    double sum = 0;
    ForEachPart([&](int64_t first, int64_t count) {
      float* const part = values + first;
      loops_.shift_scale_shift(scores + first, part, count, shift, 1, 0);
      loops_.exp_scaled(part, part, count, 1);
      sum += static_cast<double>(loops_.reduce_row[static_cast<size_t>(Reduction::kSum)](part, count));
    });
    return sum;
  }

  // The exponentials become the gradient. `to`: the row begins at its element `begin`; null: the gradient has 32 bits and stays in place.
  void StoreGradient(float* values, int64_t label, float scale, float own, float d_loss, const float* weights, void* to,
                     int64_t begin) const {
    const bool uniform = smoothing_ != 0 && weights == nullptr;
    const float each = static_cast<float>(spread_) * d_loss;
    ForEachPart([&](int64_t first, int64_t count) {
      float* const part = values + first;
      loops_.shift_scale_shift(part, part, count, 0, scale, uniform ? -each : 0);
      for (int64_t c = 0; c < count && smoothing_ != 0 && !uniform; ++c) part[c] -= each * weights[first + c];
      if (label >= first && label < first + count) values[label] -= own;
      if (to != nullptr) StoreFloats(loops_, dtype_, part, count, to, begin + first);
    });
  }

  // Calls f(first, count) for parts of a row that stay in the first-level cache between loops.
  template <typename F>
  void ForEachPart(const F& f) const {
    constexpr int64_t kPart = 2048;
    for (int64_t first = 0; first < classes_; first += kPart) f(first, std::min(kPart, classes_ - first));
  }

  DType dtype_;
  int64_t row_floats_, per_row_;
  bool weighted_;
  double spread_;
};

class LabelWeights : public Kernel {
 public:
  explicit LabelWeights(const KernelCall& call)
      : rows_(call.inputs[0].shape[0]),
        ignored_(call.attributes.Int("ignore_index", -100)),
        classes_(HasInput(call, 1) ? call.inputs[1].shape[0] : 0) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const auto* const labels = static_cast<const int64_t*>(inputs[0]);
    double sum = 0;
    if (classes_ == 0) {
      sum = static_cast<double>(rows_ - std::count(labels, labels + rows_, ignored_));
    } else {
      const auto* const weights = static_cast<const float*>(inputs[1]);
      for (int64_t row = 0; row < rows_; ++row) {
        const int64_t label = labels[row];
        if (label != ignored_ && label >= 0 && label < classes_) sum += static_cast<double>(weights[label]);
      }
    }
    *static_cast<float*>(outputs[0]) = static_cast<float>(sum);
  }

 private:
  int64_t rows_, ignored_;
  int64_t classes_;  // 0: all weights are 1
};

class NllGrad : public Kernel {
 public:
  explicit NllGrad(const KernelCall& call)
      : rows_(call.outputs[0].shape[0]),
        classes_(call.outputs[0].shape[1]),
        per_row_(call.inputs[2].shape.rank()),
        threads_(call.threads),
        labels_(call, call.outputs[0].shape, 1) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    labels_.Bind(inputs, 0);
    float* gradient = static_cast<float*>(outputs[0]);
    ZeroBytes(gradient, rows_ * classes_ * static_cast<int64_t>(sizeof(float)), threads_);
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t label = labels_.At(row);
      if (label < 0) continue;
      gradient[row * classes_ + label] = -static_cast<float>(labels_.Weight(label)) * static_cast<const float*>(inputs[2])[row * per_row_];
    }
    labels_.Check();
  }

 private:
  int64_t rows_, classes_, per_row_;
  int threads_;
  Labels labels_;
};

// Operand `target` must have int64 labels, all others must be float32.
template <size_t target>
std::string Rejects(const KernelCall& call) {
  if (std::string why = RejectsLayouts(call); !why.empty()) return why;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const DType wanted = i == target ? DType::kInt64 : DType::kFloat32;
    if (call.inputs[i].present() && call.inputs[i].dtype != wanted) return std::string(DTypeName(call.inputs[i].dtype));
  }
  return "";
}

// The same, but the first operand may have 16 bits.
template <size_t target>
std::string RejectsLogSum(const KernelCall& call) {
  KernelCall widened = call;
  OperandType& scores = widened.inputs[0];
  if (Is16BitFloat(scores.dtype)) scores.dtype = DType::kFloat32;
  return Rejects<target>(widened);
}

std::string RejectsLabelWeights(const KernelCall& call) {
  return call.outputs[0].dtype == DType::kFloat32 ? Rejects<0>(call) : std::string(DTypeName(call.outputs[0].dtype));
}

// Each row is read before it is written.
constexpr Aliasing kInPlace[] = {{0, 0}}, kLogInPlace[] = {{2, 0}}, kTrainingInPlace[] = {{1, 0}};

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.CrossEntropy",
             .op = "CrossEntropy",
             .domain = "gradloom",
             .rejects = Rejects<1>,
             .may_alias = kLogInPlace,
             .scratch_bytes = CrossEntropyScratch},
     .make = MakeKernel<CrossEntropy>},
    {.row = {.name = "cpu.CrossEntropyGrad", .op = "CrossEntropyGrad", .domain = "gradloom", .rejects = Rejects<1>, .may_alias = kInPlace},
     .make = MakeKernel<CrossEntropyGrad>},
    {.row = {.name = "cpu.CrossEntropyLogSum",
             .op = "CrossEntropyLogSum",
             .domain = "gradloom",
             .rejects = RejectsLogSum<1>,
             .scratch_bytes = LogSumScratch},
     .make = MakeKernel<CrossEntropyLogSum>},
    {.row = {.name = "cpu.CrossEntropyLogSumGrad",
             .op = "CrossEntropyLogSumGrad",
             .domain = "gradloom",
             .rejects = RejectsLogSum<2>,
             .may_alias = kInPlace,
             .scratch_bytes = LogSumGradScratch},
     .make = MakeKernel<CrossEntropyLogSumGrad>},
    {.row = {.name = "cpu.CrossEntropyTraining",
             .op = "CrossEntropyTraining",
             .domain = "gradloom",
             .rejects = RejectsLogSum<1>,
             .may_alias = kTrainingInPlace,
             .scratch_bytes = TrainingScratch},
     .make = MakeKernel<CrossEntropyTraining>},
    {.row = {.name = "cpu.LabelWeights", .op = "LabelWeights", .domain = "gradloom", .rejects = RejectsLabelWeights},
     .make = MakeKernel<LabelWeights>},
    {.row = {.name = "cpu.NllGrad", .op = "NllGrad", .domain = "gradloom", .rejects = Rejects<0>}, .make = MakeKernel<NllGrad>},
};

}  // namespace

std::span<const CpuKernel> CpuLossKernels() { return kKernels; }

}  // namespace gradloom
