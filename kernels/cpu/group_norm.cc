// InstanceNormalization, GroupNormalization and their gradient in float32: by group of an image in row-major memory, by image in
// channels-last memory.
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
constexpr int64_t kRows = 32;  // of interleaved channels: few enough for a plain float sum

struct Groups {
  int64_t images, channels, groups, points;
  bool innermost;  // an image is stored as [points, channels]

  Groups(const KernelCall& call, const OperandType& x)
      : images(x.shape[0]),
        channels(x.shape[1]),
        groups(call.op == "InstanceNormalization" ? channels : call.attributes.Int("num_groups", 1)),
        points(Product(x.shape, 2, x.shape.rank())),
        innermost(channels > 1 && (points == 1 || !x.layout.plain())) {}

  int64_t per_group() const { return channels / groups; }
  int64_t size() const { return per_group() * points; }  // elements that are normalized together
  int Threads(const KernelCall& call) const { return ThreadsFor(images * channels * points, kElementsPerThread, call.threads); }
};

float InverseDeviation(double squares, double count, float epsilon) {
  return static_cast<float>(1 / std::sqrt(squares / count + static_cast<double>(epsilon)));
}

// The memory of one thread for a channels-last image: numbers per channel.
struct ChannelMemory {
  float *first, *second, *mean, *scale, *shift;  // float, one per channel
  double *sums, *squares;                        // double, one per channel

  static int64_t Floats(int64_t channels) { return AlignUp(9 * channels, kAlignmentBytes / static_cast<int64_t>(sizeof(float))); }

  ChannelMemory(void* scratch, int64_t channels) {
    sums = static_cast<double*>(scratch) + ThreadIndex() * Floats(channels) / 2;
    squares = sums + channels;
    first = reinterpret_cast<float*>(squares + channels);
    second = first + channels, mean = second + channels, scale = mean + channels, shift = scale + channels;
  }
};

// Calls f(group, mean, inverse deviation) for each group of a channels-last image.
template <typename F>
void ForEachGroup(const Loops& loops, const Groups& n, const float* x, float epsilon, const ChannelMemory& memory, F f) {
  const double points = static_cast<double>(n.points), count = static_cast<double>(n.size());
  // Combines parts, and then the channels of a group, by the formula of Chan, Golub and LeVeque (1979).
  for (int64_t row = 0; row < n.points; row += kRows) {
    const int64_t rows = std::min(kRows, n.points - row);
    loops.column_moments(x + row * n.channels, rows, n.channels, memory.first, memory.second);
    const double before = static_cast<double>(row), more = static_cast<double>(rows), all = before + more;
    for (int64_t c = 0; c < n.channels; ++c) {
      const double mean = static_cast<double>(memory.first[c]), squares = static_cast<double>(memory.second[c]);
      const double distance = row == 0 ? 0 : mean - memory.sums[c];
      memory.squares[c] = (row == 0 ? 0 : memory.squares[c]) + squares + distance * distance * before * more / all;
      memory.sums[c] = row == 0 ? mean : memory.sums[c] + distance * more / all;  // the mean so far
    }
  }
  for (int64_t g = 0; g < n.groups; ++g) {
    const int64_t begin = g * n.per_group(), end = begin + n.per_group();
    double mean = 0, squares = 0;
    for (int64_t c = begin; c < end; ++c) mean += memory.sums[c];
    mean /= static_cast<double>(n.per_group());
    for (int64_t c = begin; c < end; ++c) squares += memory.squares[c] + points * (memory.sums[c] - mean) * (memory.sums[c] - mean);
    f(g, mean, InverseDeviation(squares, count, epsilon));
  }
}

class GroupNormKernel : public Kernel {
 protected:
  GroupNormKernel(const KernelCall& call, const OperandType& x)
      : loops_(BestLoops()),
        n_(call, x),
        epsilon_(static_cast<float>(call.attributes.Float("epsilon", 1e-5))),
        threads_(n_.Threads(call)) {}

  struct Moments {
    float mean, inverse;
    float lost;  // the rounding error of the mean
  };

  // For one group in row-major memory.
  Moments MomentsOf(const float* x) const {
    const double count = static_cast<double>(n_.size());
    double sum = 0;
    for (int64_t c = 0; c < n_.per_group(); ++c) sum += static_cast<double>(Sum(x + c * n_.points));
    const auto mean = static_cast<float>(sum / count);
    return {mean, InverseDeviation(loops_.sum_squared_distance(x, n_.size(), mean), count, epsilon_),
            static_cast<float>(static_cast<double>(mean) - sum / count)};
  }

  float Sum(const float* x) const { return loops_.reduce_row[static_cast<size_t>(Reduction::kSum)](x, n_.points); }

  const Loops& loops_;
  Groups n_;
  float epsilon_;
  int threads_;
};

class GroupNormalization : public GroupNormKernel {
 public:
  explicit GroupNormalization(const KernelCall& call) : GroupNormKernel(call, call.inputs[0]) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const float *x = static_cast<const float*>(inputs[0]), *scale = static_cast<const float*>(inputs[1]),
                *bias = static_cast<const float*>(inputs[2]);
    float* y = static_cast<float*>(outputs[0]);
    if (n_.innermost) return Images(x, scale, bias, y, scratch);
    ParallelFor(n_.images * n_.groups, threads_, [&](int64_t g) {
      const float* from = x + g * n_.size();
      float* to = y + g * n_.size();
      const Moments m = MomentsOf(from);
      const int64_t first = g % n_.groups * n_.per_group();
      for (int64_t c = 0; c < n_.per_group(); ++c) {
        const int64_t at = c * n_.points;
        const float slope = m.inverse * scale[first + c];
        loops_.shift_scale_shift(from + at, to + at, n_.points, m.mean, slope, bias[first + c] + m.lost * slope);
      }
    });
  }

 private:
  void Images(const float* x, const float* scale, const float* bias, float* y, void* scratch) const {
    const int64_t size = n_.channels * n_.points;
    ParallelFor(n_.images, threads_, [&](int64_t i) {
      const ChannelMemory memory(scratch, n_.channels);
      ForEachGroup(loops_, n_, x + i * size, epsilon_, memory, [&](int64_t g, double mean, float inverse) {
        const auto rounded = static_cast<float>(mean), lost = static_cast<float>(static_cast<double>(rounded) - mean);
        for (int64_t c = g * n_.per_group(); c < (g + 1) * n_.per_group(); ++c) {
          memory.mean[c] = rounded;
          memory.scale[c] = inverse * scale[c];
          memory.shift[c] = bias[c] + lost * memory.scale[c];
        }
      });
      loops_.shift_scale_shift_columns(x + i * size, y + i * size, n_.points, n_.channels, memory.mean, memory.scale, memory.shift);
    });
  }
};

// With h = (x - mean) inverse and d = dy scale: dx = inverse (d - mean(d) - h mean(d h)), dscale = sum(dy h), dbias = sum(dy).
class GroupNormGrad : public GroupNormKernel {
 public:
  explicit GroupNormGrad(const KernelCall& call) : GroupNormKernel(call, call.inputs[1]) {}

  // The gradients of scale and bias for each image and channel; then ChannelMemory.
  static int64_t Scratch(const KernelCall& call) {
    const Groups n(call, call.inputs[1]);
    return PartBytes(n) + (n.innermost ? std::max(call.threads, 1) * ChannelMemory::Floats(n.channels) * 4 : 0);
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const float *dy = static_cast<const float*>(inputs[0]), *x = static_cast<const float*>(inputs[1]),
                *scale = static_cast<const float*>(inputs[2]);
    float* dx = static_cast<float*>(outputs[0]);
    auto* parts = static_cast<double*>(scratch);
    if (n_.innermost) {
      Images(dy, x, scale, dx, parts, static_cast<char*>(scratch) + PartBytes(n_));
    } else {
      ParallelFor(n_.images * n_.groups, threads_, [&](int64_t g) { Group(g, dy, x, scale, dx, parts); });
    }
    for (int64_t c = 0; c < n_.channels; ++c) {
      double dscale = 0, dbias = 0;
      for (int64_t i = 0; i < n_.images; ++i) {
        const double* part = parts + 2 * (i * n_.channels + c);
        dscale += part[0];
        dbias += part[1];
      }
      static_cast<float*>(outputs[1])[c] = static_cast<float>(dscale);
      static_cast<float*>(outputs[2])[c] = static_cast<float>(dbias);
    }
  }

 private:
  static int64_t PartBytes(const Groups& n) {
    return AlignUp(2 * n.images * n.channels * static_cast<int64_t>(sizeof(double)), kAlignmentBytes);
  }

  // dx = grad_scale dy - (x - mean) proj_scale - shift for the channels of a group, where grad_scale is inverse * scale.
  struct Line {
    float proj_scale, shift;
  };
  Line LineOf(double sum, double product, double inverse) const {
    const double count = static_cast<double>(n_.size());
    return {static_cast<float>(inverse * inverse * product / count), static_cast<float>(inverse * sum / count)};
  }

  void Group(int64_t g, const float* dy, const float* x, const float* scale, float* dx, double* parts) const {
    const int64_t start = g * n_.size(), channel = g % n_.groups * n_.per_group();
    const Moments m = MomentsOf(x + start);
    const double inverse = static_cast<double>(m.inverse);
    double* part = parts + 2 * (g / n_.groups * n_.channels + channel);
    double sum = 0, product = 0;
    for (int64_t c = 0; c < n_.per_group(); ++c) {
      const int64_t at = start + c * n_.points;
      const double dbias = static_cast<double>(Sum(dy + at));
      const double dscale = loops_.sum_product_centered(dy + at, x + at, n_.points, m.mean) * inverse;
      part[2 * c] = dscale;
      part[2 * c + 1] = dbias;
      sum += dbias * static_cast<double>(scale[channel + c]);
      product += dscale * static_cast<double>(scale[channel + c]);
    }
    const Line line = LineOf(sum, product, inverse);
    for (int64_t c = 0; c < n_.per_group(); ++c) {
      const int64_t at = start + c * n_.points;
      loops_.group_gradient(dy + at, x + at, dx + at, n_.points, m.inverse * scale[channel + c], m.mean, line.proj_scale, line.shift);
    }
  }

  void Images(const float* dy, const float* x, const float* scale, float* dx, double* parts, void* scratch) const {
    const int64_t size = n_.channels * n_.points;
    ParallelFor(n_.images, threads_, [&](int64_t i) {
      const ChannelMemory memory(scratch, n_.channels);
      const float *own_dy = dy + i * size, *own_x = x + i * size;
      ForEachGroup(loops_, n_, own_x, epsilon_, memory, [&](int64_t g, double mean, float inverse) {
        for (int64_t c = g * n_.per_group(); c < (g + 1) * n_.per_group(); ++c) {
          memory.mean[c] = static_cast<float>(mean);
          memory.scale[c] = inverse;
        }
      });
      std::fill_n(memory.sums, 2 * n_.channels, 0.0);  // now sums of dy, followed by those of dy (x - mean)
      for (int64_t row = 0; row < n_.points; row += kRows) {
        const int64_t at = row * n_.channels;
        loops_.column_products(own_dy + at, own_x + at, std::min(kRows, n_.points - row), n_.channels, memory.mean, memory.first,
                               memory.second);
        for (int64_t c = 0; c < n_.channels; ++c) {
          memory.sums[c] += static_cast<double>(memory.first[c]);
          memory.squares[c] += static_cast<double>(memory.second[c]);
        }
      }
      double* part = parts + 2 * i * n_.channels;
      for (int64_t g = 0; g < n_.groups; ++g) {
        const int64_t begin = g * n_.per_group(), end = begin + n_.per_group();
        const double inverse = static_cast<double>(memory.scale[begin]);
        double sum = 0, product = 0;
        for (int64_t c = begin; c < end; ++c) {
          part[2 * c] = memory.squares[c] * inverse;
          part[2 * c + 1] = memory.sums[c];
          sum += memory.sums[c] * static_cast<double>(scale[c]);
          product += part[2 * c] * static_cast<double>(scale[c]);
        }
        const Line line = LineOf(sum, product, inverse);
        for (int64_t c = begin; c < end; ++c) {
          memory.scale[c] *= scale[c];
          memory.first[c] = line.proj_scale;
          memory.shift[c] = line.shift;
        }
      }
      loops_.group_gradient_columns(own_dy, own_x, dx + i * size, n_.points, n_.channels, memory.scale, memory.mean, memory.first,
                                    memory.shift);
    });
  }
};

int64_t ForwardScratch(const KernelCall& call) {
  const Groups n(call, call.inputs[0]);
  return n.innermost ? std::max(call.threads, 1) * ChannelMemory::Floats(n.channels) * 4 : 0;
}

// `x` is the input that determines the shape; operands of other shapes have one number per channel.
std::string Rejects(const KernelCall& call, size_t x) {
  if (call.inputs.size() != 3 || call.outputs.size() != (x == 0 ? 1 : 3)) return "an unexpected number of operands";
  const OperandType& whole = call.inputs[x];
  if (whole.shape.rank() < 2) return "rank below 2";
  const bool plain = whole.layout.plain();
  if (!plain && !SameMemoryOrder(whole.layout, ChannelsLast(whole.shape.rank()), whole.shape)) return "layout " + whole.layout.ToString();
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (operand.dtype != DType::kFloat32) return std::string(DTypeName(operand.dtype));
      if (operand.shape == whole.shape) {
        if (!SameMemoryOrder(operand.layout, whole.layout, whole.shape)) return "layout " + operand.layout.ToString();
      } else if (!operand.layout.plain() || operand.shape.elements() != whole.shape[1]) {
        return operand.shape.ToString() + " beside " + whole.shape.ToString();
      }
    }
  }
  const Groups n(call, whole);
  return n.groups < 1 || n.channels % n.groups != 0 || n.size() == 0 ? "groups" : "";
}

std::string RejectsForward(const KernelCall& call) { return Rejects(call, 0); }
std::string RejectsGradient(const KernelCall& call) { return Rejects(call, 1); }

constexpr Aliasing kInPlace[] = {{0, 0}};
constexpr Aliasing kGradInPlace[] = {{0, 0}, {0, 1}};

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.InstanceNormalization",
             .op = "InstanceNormalization",
             .domain = "",
             .rejects = RejectsForward,
             .may_alias = kInPlace,
             .scratch_bytes = ForwardScratch},
     .make = MakeKernel<GroupNormalization>},
    {.row = {.name = "cpu.GroupNormalization",
             .op = "GroupNormalization",
             .domain = "",
             .rejects = RejectsForward,
             .may_alias = kInPlace,
             .scratch_bytes = ForwardScratch},
     .make = MakeKernel<GroupNormalization>},
    {.row = {.name = "cpu.GroupNormGrad",
             .op = "GroupNormGrad",
             .domain = "gradloom",
             .rejects = RejectsGradient,
             .may_alias = kGradInPlace,
             .scratch_bytes = GroupNormGrad::Scratch},
     .make = MakeKernel<GroupNormGrad>},
};

}  // namespace

std::span<const CpuKernel> CpuGroupNormKernels() { return kKernels; }

}  // namespace gradloom
