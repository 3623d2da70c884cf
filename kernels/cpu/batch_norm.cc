// BatchNormalization, with statistics of the batch or with given ones, and the gradient of the former: channel by
// channel in row-major memory, row by row where the channels are innermost.
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr int64_t kElementsPerThread = 1 << 13;
// Rows of channels are summed in parts that stay in the first-level cache and are short enough for one float sum, parts in groups whose
// number depends on the shape alone, so that the order of additions does too.
constexpr int64_t kPartElements = 1 << 12;
constexpr int64_t kMostRows = 32;
constexpr int64_t kMostGroups = 64;

// [N, C, ...] as images, channels and points.
struct Channels {
  int64_t images, channels, points;
  bool innermost = false;  // the memory is [images * points, channels]

  Channels(const OperandType& x) : images(x.shape[0]), channels(x.shape[1]), points(Product(x.shape, 2, x.shape.rank())) {
    innermost = points > 1 && channels > 1 && SamePlaces(x.layout, ChannelsLast(x.shape.rank()), x.shape);
  }
  int64_t count() const { return images * points; }
  int64_t at(int64_t image, int64_t channel) const { return (image * channels + channel) * points; }
  int Threads(const KernelCall& call) const { return ThreadsFor(count() * channels, kElementsPerThread, call.threads); }

  int64_t part() const { return std::clamp<int64_t>(kPartElements / std::max<int64_t>(channels, 1), 4, kMostRows); }
  int64_t groups() const { return std::clamp<int64_t>(count() / part(), 1, kMostGroups); }
};

// Sums of groups of rows, in the scratch: two doubles a channel and group, then two floats for the part at hand.
class GroupSums {
 public:
  explicit GroupSums(const Channels& shape) : shape_(shape) {}

  static int64_t Bytes(const Channels& shape) { return shape.innermost ? shape.groups() * GroupBytes(shape.channels) : 0; }

  double* first(void* scratch, int64_t group) const {
    return reinterpret_cast<double*>(static_cast<char*>(scratch) + group * GroupBytes(shape_.channels));
  }
  double* second(void* scratch, int64_t group) const { return first(scratch, group) + shape_.channels; }

  // Calls part(group, first row, rows, two arrays of a float per channel) for all rows, groups in parallel.
  template <typename F>
  void ForEachPart(void* scratch, int threads, F part) const {
    const int64_t groups = shape_.groups(), rows = shape_.count();
    ParallelFor(groups, threads, [&](int64_t group) {
      double* sums = first(scratch, group);
      std::fill_n(sums, 2 * shape_.channels, 0.0);
      float* floats = reinterpret_cast<float*>(sums + 2 * shape_.channels);
      const int64_t end = rows * (group + 1) / groups;
      for (int64_t row = rows * group / groups; row < end; row += shape_.part()) {
        part(group, row, std::min(shape_.part(), end - row), floats, floats + shape_.channels);
      }
    });
  }

 private:
  static int64_t GroupBytes(int64_t channels) {
    return AlignUp(channels * static_cast<int64_t>(2 * sizeof(double) + 2 * sizeof(float)), kAlignmentBytes);
  }
  const Channels& shape_;
};

// A channel's y = (x - mean) scale + shift. What the mean loses in float32 is in the shift: an x near it lands on the
// right side of zero, where a ReLU may follow.
struct Line {
  float mean, scale, shift;
};

Line LineOf(double mean, double inv_std, float scale, float bias) {
  const double factor = static_cast<double>(scale) * inv_std;
  const auto rounded = static_cast<float>(mean);
  const double lost = static_cast<double>(rounded) - mean;
  return {rounded, static_cast<float>(factor), static_cast<float>(static_cast<double>(bias) + lost * factor)};
}

// The lines of all channels, number by number.
struct Lines {
  float *mean, *scale, *shift;
  Lines(std::vector<float>& memory, int64_t channels)
      : mean(memory.data()), scale(memory.data() + channels), shift(memory.data() + 2 * channels) {}
  void Set(int64_t channel, const Line& line) const { mean[channel] = line.mean, scale[channel] = line.scale, shift[channel] = line.shift; }
};

class BatchNormTrain : public Kernel {
 public:
  explicit BatchNormTrain(const KernelCall& call)
      : loops_(BestLoops()),
        shape_(call.inputs[0]),
        epsilon_(call.attributes.Float("epsilon", 1e-5)),
        threads_(shape_.Threads(call)),
        lines_(static_cast<size_t>(shape_.innermost ? 3 * shape_.channels : 0)) {
    for (size_t i = 0; i < 3; ++i) wanted_[i] = HasOutput(call, i + 1);
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const float *x = static_cast<const float*>(inputs[0]), *scale = static_cast<const float*>(inputs[1]),
                *bias = static_cast<const float*>(inputs[2]);
    float* y = static_cast<float*>(outputs[0]);
    if (shape_.innermost) return Rows(x, scale, bias, y, outputs, scratch);
    const auto sum_of = loops_.reduce_row[static_cast<size_t>(Reduction::kSum)];
    const double count = static_cast<double>(shape_.count());
    // A channel at a time: its elements stay in the cache from the first pass to the last.
    ParallelFor(shape_.channels, threads_, [&](int64_t c) {
      double sum = 0, squares = 0;
      for (int64_t n = 0; n < shape_.images; ++n) sum += static_cast<double>(sum_of(x + shape_.at(n, c), shape_.points));
      const float mean = static_cast<float>(sum / count);
      for (int64_t n = 0; n < shape_.images; ++n) squares += loops_.sum_squared_distance(x + shape_.at(n, c), shape_.points, mean);
      const Line line = Finish(c, sum / count, squares / count, scale[c], bias[c], outputs);
      for (int64_t n = 0; n < shape_.images; ++n) {
        const int64_t at = shape_.at(n, c);
        loops_.shift_scale_shift(x + at, y + at, shape_.points, line.mean, line.scale, line.shift);
      }
    });
  }

 private:
  // Writes the statistics of a channel that are wanted.
  Line Finish(int64_t c, double mean, double variance, float scale, float bias, void* const* outputs) const {
    const double inv_std = 1 / std::sqrt(variance + epsilon_);
    const float results[3] = {static_cast<float>(mean), static_cast<float>(inv_std), static_cast<float>(variance)};
    for (size_t i = 0; i < 3; ++i) {
      if (wanted_[i]) static_cast<float*>(outputs[i + 1])[c] = results[i];
    }
    return LineOf(mean, inv_std, scale, bias);
  }

  // Means and squared distances of parts, joined by the formula of Chan, Golub and LeVeque ("Updating formulae and a
  // pairwise algorithm for computing sample variances", 1979).
  static void Join(double& mean, double& squares, double count, double part_mean, double part_squares, double part_count) {
    const double distance = part_mean - mean, all = count + part_count;
    mean += distance * part_count / all;
    squares += part_squares + distance * distance * count * part_count / all;
  }

  void Rows(const float* x, const float* scale, const float* bias, float* y, void* const* outputs, void* scratch) {
    const GroupSums sums(shape_);
    const int64_t channels = shape_.channels, rows = shape_.count(), groups = shape_.groups();
    sums.ForEachPart(scratch, threads_, [&](int64_t group, int64_t row, int64_t n, float* mean, float* squares) {
      loops_.column_moments(x + row * channels, n, channels, mean, squares);
      double *means = sums.first(scratch, group), *all = sums.second(scratch, group);
      const double before = static_cast<double>(row - rows * group / groups);
      for (int64_t c = 0; c < channels; ++c) {
        Join(means[c], all[c], before, static_cast<double>(mean[c]), static_cast<double>(squares[c]), static_cast<double>(n));
      }
    });
    const Lines lines(lines_, channels);
    for (int64_t c = 0; c < channels; ++c) {
      double mean = 0, squares = 0;
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t before = rows * g / groups, after = rows * (g + 1) / groups;
        Join(mean, squares, static_cast<double>(before), sums.first(scratch, g)[c], sums.second(scratch, g)[c],
             static_cast<double>(after - before));
      }
      const Line line = Finish(c, mean, squares / static_cast<double>(rows), scale[c], bias[c], outputs);
      lines.Set(c, line);
    }
    ParallelRanges(rows, 1, threads_, [&](int64_t begin, int64_t end) {
      loops_.shift_scale_shift_columns(x + begin * channels, y + begin * channels, end - begin, channels, lines.mean, lines.scale,
                                       lines.shift);
    });
  }

  const Loops& loops_;
  Channels shape_;
  double epsilon_;
  int threads_;
  std::vector<float> lines_;  // a Line for each channel
  bool wanted_[3] = {};
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
        product += loops_.sum_product_centred(dy + at, x + at, shape_.points, in(3)[c]);
      }
      const Slope line = Finish(c, sum, product, inputs, outputs);
      if (!wanted_[0]) return;
      for (int64_t n = 0; n < shape_.images; ++n) {
        const int64_t at = shape_.at(n, c);
        loops_.norm_gradient(dy + at, x + at, static_cast<float*>(outputs[0]) + at, shape_.points, line.slope, line.mean_g, in(3)[c],
                             line.along);
      }
    });
  }

 private:
  struct Slope {
    float slope, mean_g, along;
  };

  // Writes the gradients of a channel's scale and bias that are wanted.
  Slope Finish(int64_t c, double sum, double product, const void* const* inputs, void* const* outputs) const {
    const double count = static_cast<double>(shape_.count());
    const float scale = static_cast<const float*>(inputs[2])[c], inv_std = static_cast<const float*>(inputs[4])[c];
    const double scaled = product * static_cast<double>(inv_std);
    if (wanted_[1]) static_cast<float*>(outputs[1])[c] = static_cast<float>(scaled);
    if (wanted_[2]) static_cast<float*>(outputs[2])[c] = static_cast<float>(sum);
    return {scale * inv_std, static_cast<float>(sum / count), static_cast<float>(scaled * static_cast<double>(inv_std) / count)};
  }

  void Rows(const void* const* inputs, void* const* outputs, void* scratch) {
    const float *dy = static_cast<const float*>(inputs[0]), *x = static_cast<const float*>(inputs[1]),
                *means = static_cast<const float*>(inputs[3]);
    const GroupSums sums(shape_);
    const int64_t channels = shape_.channels;
    sums.ForEachPart(scratch, threads_, [&](int64_t group, int64_t row, int64_t n, float* sum, float* product) {
      loops_.column_products(dy + row * channels, x + row * channels, n, channels, means, sum, product);
      double *first = sums.first(scratch, group), *second = sums.second(scratch, group);
      for (int64_t c = 0; c < channels; ++c) {
        first[c] += static_cast<double>(sum[c]);
        second[c] += static_cast<double>(product[c]);
      }
    });
    float *slopes = lines_.data(), *mean_g = slopes + channels, *along = mean_g + channels;
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0, product = 0;
      for (int64_t g = 0; g < shape_.groups(); ++g) sum += sums.first(scratch, g)[c], product += sums.second(scratch, g)[c];
      const Slope line = Finish(c, sum, product, inputs, outputs);
      slopes[c] = line.slope, mean_g[c] = line.mean_g, along[c] = line.along;
    }
    if (!wanted_[0]) return;
    float* dx = static_cast<float*>(outputs[0]);
    ParallelRanges(shape_.count(), 1, threads_, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * channels;
      loops_.norm_gradient_columns(dy + at, x + at, dx + at, end - begin, channels, slopes, mean_g, means, along);
    });
  }

  const Loops& loops_;
  Channels shape_;
  int threads_;
  std::vector<float> lines_;  // three numbers for each channel
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

// Tensors of the shape of input `x`, all plain or all with the channels innermost; everything else a vector of a number
// for each channel.
std::string RejectsChannels(const KernelCall& call, size_t x) {
  const OperandType& whole = call.inputs[x];
  if (whole.shape.rank() < 2) return "rank below 2";
  const Layout last = ChannelsLast(whole.shape.rank());
  const bool plain = whole.layout.plain();
  if (!plain && !SamePlaces(whole.layout, last, whole.shape)) return "layout " + whole.layout.ToString();
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (!operand.present()) continue;
      if (operand.dtype != DType::kFloat32) return std::string(DTypeName(operand.dtype));
      if (operand.shape == whole.shape && operand.shape.rank() > 1) {
        if (!SamePlaces(operand.layout, whole.layout, whole.shape)) return "layout " + operand.layout.ToString();
      } else if (!operand.layout.plain()) {
        return "layout " + operand.layout.ToString();
      } else if (operand.shape.elements() != whole.shape[1]) {
        return operand.shape.ToString() + " beside " + whole.shape.ToString();
      }
    }
  }
  return "";
}

int64_t SumsScratch(const KernelCall& call) { return GroupSums::Bytes(Channels(call.inputs[call.op == "BatchNormTrain" ? 0 : 1])); }

constexpr Aliasing kInPlace[] = {{0, 0}};
constexpr Aliasing kGradInPlace[] = {{0, 0}, {0, 1}};

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.BatchNormTrain",
             .op = "BatchNormTrain",
             .domain = "gradloom",
             .rejects = [](const KernelCall& call) { return RejectsChannels(call, 0); },
             .may_alias = kInPlace,
             .scratch_bytes = SumsScratch},
     .make = MakeKernel<BatchNormTrain>},
    {.row = {.name = "cpu.BatchNormTrainGrad",
             .op = "BatchNormTrainGrad",
             .domain = "gradloom",
             .rejects = [](const KernelCall& call) { return RejectsChannels(call, 1); },
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
