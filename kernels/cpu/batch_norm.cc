// BatchNormalization with batch statistics, its gradient, and BatchNormalization with given statistics.
#include "kernels/cpu/batch_norm.h"

#include <array>
#include <cmath>

#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"

namespace gradloom {
namespace {

using namespace batch_norm;

// BatchNormTrain; and BatchNormLine, which leaves the computation of y = (x - center) factor + offset to other operators.
class BatchNormTrain : public Kernel {
 public:
  explicit BatchNormTrain(const KernelCall& call)
      : loops_(BestLoops()),
        line_alone_(call.op == "BatchNormLine"),
        shape_(call.inputs[0]),
        epsilon_(call.attributes.Float("epsilon", 1e-5)),
        threads_(shape_.Threads(call)),
        lines_(static_cast<size_t>(shape_.innermost ? 3 * shape_.channels : 0)) {
    for (size_t i = 0; i < 3; ++i) wanted_[i] = HasOutput(call, FirstStatistic() + i);
    for (size_t i = 0; i < 3; ++i) line_wanted_[i] = line_alone_ && HasOutput(call, i + 3);
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const float *x = static_cast<const float*>(inputs[0]), *scale = static_cast<const float*>(inputs[1]),
                *bias = static_cast<const float*>(inputs[2]);
    float* y = line_alone_ ? nullptr : static_cast<float*>(outputs[0]);
    if (shape_.innermost) return Rows(inputs[0], scale, bias, outputs, scratch);
    const auto sum_of = loops_.reduce_row[static_cast<size_t>(Reduction::kSum)];
    const double count = static_cast<double>(shape_.count());
    // One channel at a time, so that its elements stay in the cache for all passes.
    ParallelFor(shape_.channels, threads_, [&](int64_t c) {
      double sum = 0, squares = 0;
      for (int64_t n = 0; n < shape_.images; ++n) sum += static_cast<double>(sum_of(x + shape_.at(n, c), shape_.points));
      const float mean = static_cast<float>(sum / count);
      for (int64_t n = 0; n < shape_.images; ++n) squares += loops_.sum_squared_distance(x + shape_.at(n, c), shape_.points, mean);
      const Line line = Finish(c, sum / count, squares / count, scale[c], bias[c], outputs);
      if (line_alone_) return;
      for (int64_t n = 0; n < shape_.images; ++n) {
        const int64_t at = shape_.at(n, c);
        loops_.shift_scale_shift(x + at, y + at, shape_.points, line.mean, line.scale, line.shift);
      }
    });
  }

 private:
  size_t FirstStatistic() const { return line_alone_ ? 0 : 1; }

  // Writes the wanted statistics of a channel, and its line if wanted.
  Line Finish(int64_t c, double mean, double variance, float scale, float bias, void* const* outputs) const {
    const double inv_std = 1 / std::sqrt(variance + epsilon_);
    const float results[3] = {static_cast<float>(mean), static_cast<float>(inv_std), static_cast<float>(variance)};
    for (size_t i = 0; i < 3; ++i) {
      if (wanted_[i]) static_cast<float*>(outputs[FirstStatistic() + i])[c] = results[i];
    }
    const Line line = LineOf(mean, inv_std, scale, bias);
    const float numbers[3] = {line.mean, line.scale, line.shift};
    for (size_t i = 0; i < 3; ++i) {
      if (line_wanted_[i]) static_cast<float*>(outputs[i + 3])[c] = numbers[i];
    }
    return line;
  }

  // Combines means and squared distances of parts by the formula of Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm
  // for computing sample variances", 1979).
  static void Join(double& mean, double& squares, double count, double part_mean, double part_squares, double part_count) {
    const double distance = part_mean - mean, all = count + part_count;
    mean += distance * part_count / all;
    squares += part_squares + distance * distance * count * part_count / all;
  }

  void Rows(const void* x, const float* scale, const float* bias, void* const* outputs, void* scratch) {
    const GroupSums sums(shape_, 1);
    const int64_t channels = shape_.channels, rows = shape_.count(), groups = shape_.groups();
    sums.ForEachPart(scratch, threads_, [&](int64_t group, int64_t row, int64_t n, float* mean, float* squares) {
      loops_.column_moments(sums.Load(loops_, x, scratch, group, 0, row, n), n, channels, mean, squares);
      double *means = sums.first(scratch, group), *all = sums.second(scratch, group);
      const double before = static_cast<double>(row - rows * group / groups);
      for (int64_t c = 0; c < channels; ++c) {
        Join(means[c], all[c], before, static_cast<double>(mean[c]), static_cast<double>(squares[c]), static_cast<double>(n));
      }
    });
    const Lines lines(lines_, channels);
    sums.Combine(
        scratch, threads_,
        [&](int64_t group, double& mean, double& squares, double part_mean, double part_squares) {
          const int64_t before = rows * group / groups, after = rows * (group + 1) / groups;
          Join(mean, squares, static_cast<double>(before), part_mean, part_squares, static_cast<double>(after - before));
        },
        [&](int64_t c, double mean, double squares) {
          lines.Set(c, Finish(c, mean, squares / static_cast<double>(rows), scale[c], bias[c], outputs));
        });
    if (line_alone_) return;
    sums.ForEachPart(scratch, threads_, [&](int64_t group, int64_t row, int64_t n, float*, float*) {
      float* const y = sums.Destination(outputs[0], scratch, group, 0, row);
      loops_.shift_scale_shift_columns(sums.Load(loops_, x, scratch, group, 0, row, n), y, n, channels, lines.mean, lines.scale,
                                       lines.shift);
      sums.Store(loops_, y, outputs[0], row, n);
    });
  }

  const Loops& loops_;
  bool line_alone_;
  Channels shape_;
  double epsilon_;
  int threads_;
  std::vector<float> lines_;  // one Line per channel
  bool wanted_[3] = {}, line_wanted_[3] = {};
};

class BatchNormTrainGrad : public Kernel {
 public:
  explicit BatchNormTrainGrad(const KernelCall& call)
      : loops_(BestLoops()),
        shape_(call.inputs[1]),
        threads_(shape_.Threads(call)),
        lines_(static_cast<size_t>(shape_.innermost ? 3 * shape_.channels : 0)) {
    for (size_t i = 0; i < 3; ++i) wanted_[i] = HasOutput(call, i);
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    if (shape_.innermost) return Rows(inputs, outputs, scratch);
    const auto in = [&](int i) { return static_cast<const float*>(inputs[i]); };
    const float *dy = in(0), *x = in(1);
    const auto sum_of = loops_.reduce_row[static_cast<size_t>(Reduction::kSum)];
    ParallelFor(shape_.channels, threads_, [&](int64_t c) {
      double sum = 0, product = 0;
      for (int64_t n = 0; n < shape_.images; ++n) {
        const int64_t at = shape_.at(n, c);
        sum += static_cast<double>(sum_of(dy + at, shape_.points));
        product += loops_.sum_product_centered(dy + at, x + at, shape_.points, in(3)[c]);
      }
      const GradientLine line = Finish(c, sum, product, inputs, outputs);
      if (!wanted_[0]) return;
      for (int64_t n = 0; n < shape_.images; ++n) {
        const int64_t at = shape_.at(n, c);
        loops_.norm_gradient(dy + at, x + at, static_cast<float*>(outputs[0]) + at, shape_.points, line.grad_scale, line.mean_g, in(3)[c],
                             line.proj_scale);
      }
    });
  }

 private:
  // Writes the wanted gradients of a channel's scale and bias.
  GradientLine Finish(int64_t c, double sum, double product, const void* const* inputs, void* const* outputs) const {
    const float scale = static_cast<const float*>(inputs[2])[c], inv_std = static_cast<const float*>(inputs[4])[c];
    if (wanted_[1]) static_cast<float*>(outputs[1])[c] = static_cast<float>(product * static_cast<double>(inv_std));
    if (wanted_[2]) static_cast<float*>(outputs[2])[c] = static_cast<float>(sum);
    return GradientLineOf(sum, product, static_cast<double>(shape_.count()), scale, inv_std);
  }

  void Rows(const void* const* inputs, void* const* outputs, void* scratch) {
    const auto* means = static_cast<const float*>(inputs[3]);
    const GroupSums sums(shape_, 2);
    const int64_t channels = shape_.channels;
    sums.ForEachPart(scratch, threads_, [&](int64_t group, int64_t row, int64_t n, float* sum, float* product) {
      const float *dy = sums.Load(loops_, inputs[0], scratch, group, 0, row, n),
                  *x = sums.Load(loops_, inputs[1], scratch, group, 1, row, n);
      loops_.column_products(dy, x, n, channels, means, sum, product);
      double *first = sums.first(scratch, group), *second = sums.second(scratch, group);
      for (int64_t c = 0; c < channels; ++c) {
        first[c] += static_cast<double>(sum[c]);
        second[c] += static_cast<double>(product[c]);
      }
    });
    float *grad_scales = lines_.data(), *mean_g = grad_scales + channels, *proj_scale = mean_g + channels;
    sums.Combine(
        scratch, threads_, [](int64_t, double& sum, double& product, double first, double second) { sum += first, product += second; },
        [&](int64_t c, double sum, double product) {
          const GradientLine line = Finish(c, sum, product, inputs, outputs);
          grad_scales[c] = line.grad_scale, mean_g[c] = line.mean_g, proj_scale[c] = line.proj_scale;
        });
    if (!wanted_[0]) return;
    sums.ForEachPart(scratch, threads_, [&](int64_t group, int64_t row, int64_t n, float*, float*) {
      const float *dy = sums.Load(loops_, inputs[0], scratch, group, 0, row, n),
                  *x = sums.Load(loops_, inputs[1], scratch, group, 1, row, n);
      float* const dx = sums.Destination(outputs[0], scratch, group, 0, row);
      loops_.norm_gradient_columns(dy, x, dx, n, channels, grad_scales, mean_g, means, proj_scale);
      sums.Store(loops_, dx, outputs[0], row, n);
    });
  }

  const Loops& loops_;
  Channels shape_;
  int threads_;
  std::vector<float> lines_;  // three numbers per channel
  bool wanted_[3] = {};
};

// BatchNormalization with given statistics.
class BatchNormalization : public Kernel {
 public:
  explicit BatchNormalization(const KernelCall& call)
      : loops_(BestLoops()),
        shape_(call.inputs[0]),
        epsilon_(call.attributes.Float("epsilon", 1e-5)),
        threads_(shape_.Threads(call)),
        lines_(static_cast<size_t>(3 * shape_.channels)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const auto in = [&](int i) { return static_cast<const float*>(inputs[i]); };
    const float* x = in(0);
    float* y = static_cast<float*>(outputs[0]);
    const Lines lines(lines_, shape_.channels);
    for (int64_t c = 0; c < shape_.channels; ++c) {
      lines.Set(c, LineOf(static_cast<double>(in(3)[c]), 1 / std::sqrt(static_cast<double>(in(4)[c]) + epsilon_), in(1)[c], in(2)[c]));
    }
    if (shape_.innermost) {
      ParallelRanges(shape_.count(), 1, threads_, [&](int64_t begin, int64_t end) {
        const int64_t at = begin * shape_.channels;
        loops_.shift_scale_shift_columns(x + at, y + at, end - begin, shape_.channels, lines.mean, lines.scale, lines.shift);
      });
      return;
    }
    ParallelFor(shape_.images * shape_.channels, threads_, [&](int64_t plane) {
      const int64_t c = plane % shape_.channels, at = plane * shape_.points;
      loops_.shift_scale_shift(x + at, y + at, shape_.points, lines.mean[c], lines.scale[c], lines.shift[c]);
    });
  }

 private:
  const Loops& loops_;
  Channels shape_;
  double epsilon_;
  int threads_;
  std::vector<float> lines_;
};

int64_t SumsScratch(const KernelCall& call) {
  const bool gradient = call.op == "BatchNormTrainGrad";
  const Channels shape(call.inputs[gradient ? 1 : 0]);
  return GroupSums(shape, gradient ? 2 : 1).bytes();
}

constexpr Aliasing kInPlace[] = {{0, 0}};
constexpr Aliasing kGradInPlace[] = {{0, 0}, {0, 1}};

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.BatchNormTrain",
             .op = "BatchNormTrain",
             .domain = "gradloom",
             .rejects = [](const KernelCall& call) { return RejectsChannels(call, 0, true); },
             .may_alias = kInPlace,
             .scratch_bytes = SumsScratch},
     .make = MakeKernel<BatchNormTrain>},
    {.row = {.name = "cpu.BatchNormLine",
             .op = "BatchNormLine",
             .domain = "gradloom",
             .rejects = [](const KernelCall& call) { return RejectsChannels(call, 0); },
             .scratch_bytes = SumsScratch},
     .make = MakeKernel<BatchNormTrain>},
    {.row = {.name = "cpu.BatchNormTrainGrad",
             .op = "BatchNormTrainGrad",
             .domain = "gradloom",
             .rejects = [](const KernelCall& call) { return RejectsChannels(call, 1, true); },
             .may_alias = kGradInPlace,
             .scratch_bytes = SumsScratch},
     .make = MakeKernel<BatchNormTrainGrad>},
    {.row = {.name = "cpu.BatchNormalization",
             .op = "BatchNormalization",
             .domain = "",
             .rejects = [](const KernelCall& call) -> std::string {
               if (call.attributes.Int("training_mode", 0) != 0 || call.outputs.size() > 1) return "statistics of the batch";
               return RejectsChannels(call, 0);
             },
             .may_alias = kInPlace},
     .make = MakeKernel<BatchNormalization>},
};

}  // namespace

std::span<const CpuKernel> CpuBatchNormKernels() { return kKernels; }

}  // namespace gradloom
