// Batch normalization with statistics over samples on several devices: the sums of each device in double, and the results from the sums of
// all devices.
#include <cmath>

#include "kernels/cpu/batch_norm.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"

namespace gradloom {
namespace {

using namespace batch_norm;

// Calls add(channel, first, second) for each channel with its two sums in double. channel_sums(c) returns them in row-major memory;
// part_sums(row, n, one, two) computes those of rows [row, row + n) in channels-last memory.
struct PairSums {
  const Channels& shape;
  int threads;

  template <typename ChannelSums, typename PartSums, typename AddPart>
  void Run(void* scratch, double* out, ChannelSums channel_sums, PartSums part_sums, AddPart add_part) const {
    const int64_t channels = shape.channels;
    if (!shape.innermost) {
      ParallelFor(channels, threads, [&](int64_t c) {
        const auto [one, two] = channel_sums(c);
        out[c] = one;
        out[channels + c] = two;
      });
      return;
    }
    const GroupSums sums(shape, 0);
    sums.ForEachPart(scratch, threads, [&](int64_t group, int64_t row, int64_t n, float* one, float* two) {
      part_sums(row, n, one, two);
      double *first = sums.first(scratch, group), *second = sums.second(scratch, group);
      for (int64_t c = 0; c < channels; ++c) {
        const auto [a, b] = add_part(static_cast<double>(one[c]), static_cast<double>(two[c]), static_cast<double>(n));
        first[c] += a;
        second[c] += b;
      }
    });
    sums.Combine(
        scratch, threads, [](int64_t, double& one, double& two, double first, double second) { one += first, two += second; },
        [&](int64_t c, double one, double two) {
          out[c] = one;
          out[channels + c] = two;
        });
  }
};

using Pair = std::pair<double, double>;

// Sums of x and of its squares.
class BatchNormSums : public Kernel {
 public:
  explicit BatchNormSums(const KernelCall& call) : loops_(BestLoops()), shape_(call.inputs[0]), threads_(shape_.Threads(call)) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const float* x = static_cast<const float*>(inputs[0]);
    const auto sum_of = loops_.reduce_row[static_cast<size_t>(Reduction::kSum)];
    const double points = static_cast<double>(shape_.points);
    const auto moments = [](double mean, double squares, double n) { return Pair(mean * n, squares + mean * mean * n); };
    PairSums{shape_, threads_}.Run(
        scratch, static_cast<double*>(outputs[0]),
        [&](int64_t c) {
          Pair sums;
          for (int64_t n = 0; n < shape_.images; ++n) {
            const float* plane = x + shape_.at(n, c);
            const double sum = static_cast<double>(sum_of(plane, shape_.points));
            // Squared distances lose less accuracy in float than squares.
            const float near = static_cast<float>(sum / points);
            const double distance = sum / points - static_cast<double>(near);
            const double squares = loops_.sum_squared_distance(plane, shape_.points, near) - distance * distance * points;
            const auto [one, two] = moments(sum / points, squares, points);
            sums.first += one;
            sums.second += two;
          }
          return sums;
        },
        [&](int64_t row, int64_t n, float* mean, float* squares) {
          loops_.column_moments(x + row * shape_.channels, n, shape_.channels, mean, squares);
        },
        moments);
  }

 private:
  const Loops& loops_;
  Channels shape_;
  int threads_;
};

class BatchNormApply : public Kernel {
 public:
  explicit BatchNormApply(const KernelCall& call)
      : loops_(BestLoops()),
        shape_(call.inputs[0]),
        epsilon_(call.attributes.Float("epsilon", 1e-5)),
        count_(call.attributes.Float("count", 1)),
        threads_(shape_.Threads(call)),
        lines_(static_cast<size_t>(3 * shape_.channels)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const float *x = static_cast<const float*>(inputs[0]), *scale = static_cast<const float*>(inputs[1]),
                *bias = static_cast<const float*>(inputs[2]);
    const double* sums = static_cast<const double*>(inputs[3]);
    float* y = static_cast<float*>(outputs[0]);
    const int64_t channels = shape_.channels;
    const Lines lines(lines_, channels);
    for (int64_t c = 0; c < channels; ++c) {
      const double mean = sums[c] / count_, variance = std::max(0.0, sums[channels + c] / count_ - mean * mean);
      lines.Set(c, LineOf(mean, 1 / std::sqrt(variance + epsilon_), scale[c], bias[c]));
    }
    if (shape_.innermost) {
      ParallelRanges(shape_.count(), 1, threads_, [&](int64_t begin, int64_t end) {
        const int64_t at = begin * channels;
        loops_.shift_scale_shift_columns(x + at, y + at, end - begin, channels, lines.mean, lines.scale, lines.shift);
      });
      return;
    }
    ParallelFor(shape_.images * channels, threads_, [&](int64_t plane) {
      const int64_t c = plane % channels, at = plane * shape_.points;
      loops_.shift_scale_shift(x + at, y + at, shape_.points, lines.mean[c], lines.scale[c], lines.shift[c]);
    });
  }

 private:
  const Loops& loops_;
  Channels shape_;
  double epsilon_, count_;
  int threads_;
  std::vector<float> lines_;
};

// Sums of dy and of dy (x - mean).
class BatchNormGradSums : public Kernel {
 public:
  explicit BatchNormGradSums(const KernelCall& call) : loops_(BestLoops()), shape_(call.inputs[1]), threads_(shape_.Threads(call)) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const float *dy = static_cast<const float*>(inputs[0]), *x = static_cast<const float*>(inputs[1]),
                *means = static_cast<const float*>(inputs[2]);
    const auto sum_of = loops_.reduce_row[static_cast<size_t>(Reduction::kSum)];
    PairSums{shape_, threads_}.Run(
        scratch, static_cast<double*>(outputs[0]),
        [&](int64_t c) {
          Pair sums;
          for (int64_t n = 0; n < shape_.images; ++n) {
            const int64_t at = shape_.at(n, c);
            sums.first += static_cast<double>(sum_of(dy + at, shape_.points));
            sums.second += loops_.sum_product_centered(dy + at, x + at, shape_.points, means[c]);
          }
          return sums;
        },
        [&](int64_t row, int64_t n, float* sum, float* product) {
          const int64_t at = row * shape_.channels;
          loops_.column_products(dy + at, x + at, n, shape_.channels, means, sum, product);
        },
        [](double sum, double product, double) { return Pair(sum, product); });
  }

 private:
  const Loops& loops_;
  Channels shape_;
  int threads_;
};

class BatchNormGradApply : public Kernel {
 public:
  explicit BatchNormGradApply(const KernelCall& call)
      : loops_(BestLoops()),
        shape_(call.inputs[1]),
        count_(call.attributes.Float("count", 1)),
        threads_(shape_.Threads(call)),
        lines_(static_cast<size_t>(3 * shape_.channels)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const auto in = [&](int i) { return static_cast<const float*>(inputs[i]); };
    const double* sums = static_cast<const double*>(inputs[5]);
    const int64_t channels = shape_.channels;
    float *grad_scales = lines_.data(), *mean_g = grad_scales + channels, *proj_scale = mean_g + channels;
    for (int64_t c = 0; c < channels; ++c) {
      const GradientLine line = GradientLineOf(sums[c], sums[channels + c], count_, in(2)[c], in(4)[c]);
      grad_scales[c] = line.grad_scale, mean_g[c] = line.mean_g, proj_scale[c] = line.proj_scale;
    }
    const float *dy = in(0), *x = in(1), *means = in(3);
    float* dx = static_cast<float*>(outputs[0]);
    if (shape_.innermost) {
      ParallelRanges(shape_.count(), 1, threads_, [&](int64_t begin, int64_t end) {
        const int64_t at = begin * channels;
        loops_.norm_gradient_columns(dy + at, x + at, dx + at, end - begin, channels, grad_scales, mean_g, means, proj_scale);
      });
      return;
    }
    ParallelFor(shape_.images * channels, threads_, [&](int64_t plane) {
      const int64_t c = plane % channels, at = plane * shape_.points;
      loops_.norm_gradient(dy + at, x + at, dx + at, shape_.points, grad_scales[c], mean_g[c], means[c], proj_scale[c]);
    });
  }

 private:
  const Loops& loops_;
  Channels shape_;
  double count_;
  int threads_;
  std::vector<float> lines_;  // three numbers per channel
};

template <int kX>
std::string Rejects(const KernelCall& call) {
  return RejectsChannels(call, kX);
}

template <int kX>
int64_t Scratch(const KernelCall& call) {
  const Channels shape(call.inputs[kX]);
  return GroupSums(shape, 0).bytes();
}

constexpr Aliasing kInPlace[] = {{0, 0}};
constexpr Aliasing kGradInPlace[] = {{0, 0}, {0, 1}};

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.BatchNormSums", .op = "BatchNormSums", .domain = "gradloom", .rejects = Rejects<0>, .scratch_bytes = Scratch<0>},
     .make = MakeKernel<BatchNormSums>},
    {.row = {.name = "cpu.BatchNormApply", .op = "BatchNormApply", .domain = "gradloom", .rejects = Rejects<0>, .may_alias = kInPlace},
     .make = MakeKernel<BatchNormApply>},
    {.row = {.name = "cpu.BatchNormGradSums",
             .op = "BatchNormGradSums",
             .domain = "gradloom",
             .rejects = Rejects<1>,
             .scratch_bytes = Scratch<1>},
     .make = MakeKernel<BatchNormGradSums>},
    {.row = {.name = "cpu.BatchNormGradApply",
             .op = "BatchNormGradApply",
             .domain = "gradloom",
             .rejects = Rejects<1>,
             .may_alias = kGradInPlace},
     .make = MakeKernel<BatchNormGradApply>},
};

}  // namespace

std::span<const CpuKernel> CpuSharedBatchNormKernels() { return kKernels; }

}  // namespace gradloom
