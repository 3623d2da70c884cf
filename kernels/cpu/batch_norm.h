// The parts common to the kernels of batch normalization. They work channel by channel in row-major memory, and row by row in channels-last
// memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom::batch_norm {

inline constexpr int64_t kElementsPerThread = 1 << 13;
// Channels-last rows are summed in parts that stay in the L1 cache and are short enough for a plain float sum. Parts are collected in
// groups, whose number depends only on the shape, so that the order of additions does too.
inline constexpr int64_t kPartElements = 1 << 12;
inline constexpr int64_t kMaxRows = 32;
inline constexpr int64_t kMaxGroups = 64;
inline constexpr int64_t kJoinedPerThread = 1 << 11;

// A tensor [N, C, ...] as images, channels and points.
struct Channels {
  int64_t images, channels, points;
  DType dtype;
  bool innermost = false;  // memory is [images * points, channels], as for a tensor [N, C]

  Channels(const OperandType& x) : images(x.shape[0]), channels(x.shape[1]), points(Product(x.shape, 2, x.shape.rank())), dtype(x.dtype) {
    innermost = channels > 1 && SameMemoryOrder(x.layout, ChannelsLast(x.shape.rank()), x.shape);
  }
  int64_t count() const { return images * points; }
  int64_t at(int64_t image, int64_t channel) const { return (image * channels + channel) * points; }
  int Threads(const KernelCall& call) const { return ThreadsFor(count() * channels, kElementsPerThread, call.threads); }

  int64_t part() const { return std::clamp<int64_t>(kPartElements / std::max<int64_t>(channels, 1), 4, kMaxRows); }
  int64_t groups() const { return std::clamp<int64_t>(count() / part(), 1, kMaxGroups); }
  bool half() const { return dtype != DType::kFloat32; }
};

// The sums of groups of rows, in scratch memory: per group, two doubles per channel, then two floats per channel for the current part. If
// elements have 16 bits, `wide` rooms for widened parts follow.
class GroupSums {
 public:
  GroupSums(const Channels& shape, int64_t wide) : shape_(shape), wide_(wide) {}

  int64_t bytes() const { return shape_.innermost ? shape_.groups() * group_bytes() : 0; }

  double* first(void* scratch, int64_t group) const {
    return reinterpret_cast<double*>(static_cast<char*>(scratch) + group * group_bytes());
  }
  double* second(void* scratch, int64_t group) const { return first(scratch, group) + shape_.channels; }
  float* room(void* scratch, int64_t group, int64_t k) const {
    return reinterpret_cast<float*>(static_cast<char*>(scratch) + group * group_bytes() + sums_bytes()) +
           k * shape_.part() * shape_.channels;
  }

  // `n` rows of an operand as floats: in place, or widened into room k.
  const float* Load(const Loops& loops, const void* x, void* scratch, int64_t group, int64_t k, int64_t row, int64_t n) const {
    const int64_t at = row * shape_.channels;
    if (!shape_.half()) return static_cast<const float*>(x) + at;
    LoadFloats(loops, shape_.dtype, x, at, n * shape_.channels, room(scratch, group, k));
    return room(scratch, group, k);
  }

  // Where to compute rows of a result, and how to store them from room k.
  float* Destination(void* y, void* scratch, int64_t group, int64_t k, int64_t row) const {
    return shape_.half() ? room(scratch, group, k) : static_cast<float*>(y) + row * shape_.channels;
  }
  void Store(const Loops& loops, const float* from, void* y, int64_t row, int64_t n) const {
    if (shape_.half()) StoreFloats(loops, shape_.dtype, from, n * shape_.channels, y, row * shape_.channels);
  }

  // Calls part(group, first row, rows, two arrays with a float per channel) for all rows, groups in parallel.
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

  // Combines the sums of the groups in order, channels in parallel: join(group, one, two, first, second) adds the sums of a group to the
  // totals `one` and `two` of a channel, which begin as zeros, and finish(channel, one, two) gets the totals.
  template <typename Join, typename Finish>
  void Combine(void* scratch, int threads, Join join, Finish finish) const {
    constexpr int64_t kBlock = 16;
    const int64_t groups = shape_.groups(), channels = shape_.channels;
    ParallelRanges(channels, kBlock, ThreadsFor(groups * channels, kJoinedPerThread, threads), [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; c += kBlock) {
        const int64_t n = std::min(kBlock, end - c);
        double one[kBlock] = {}, two[kBlock] = {};
        for (int64_t g = 0; g < groups; ++g) {
          const double *of_first = first(scratch, g) + c, *of_second = second(scratch, g) + c;
          for (int64_t i = 0; i < n; ++i) join(g, one[i], two[i], of_first[i], of_second[i]);
        }
        for (int64_t i = 0; i < n; ++i) finish(c + i, one[i], two[i]);
      }
    });
  }

 private:
  int64_t sums_bytes() const {
    return AlignUp(shape_.channels * static_cast<int64_t>(2 * sizeof(double) + 2 * sizeof(float)), kAlignmentBytes);
  }
  int64_t group_bytes() const {
    const int64_t widened_bytes = shape_.half() ? wide_ * shape_.part() * shape_.channels * static_cast<int64_t>(sizeof(float)) : 0;
    return sums_bytes() + AlignUp(widened_bytes, kAlignmentBytes);
  }
  const Channels& shape_;
  int64_t wide_;
};

// y = (x - mean) scale + shift for a channel. The part of the mean lost by rounding to float32 is included in the shift, so that an x close
// to the mean gets the right sign, which matters to a ReLU that follows.
struct Line {
  float mean, scale, shift;
};

inline Line LineOf(double mean, double inv_std, float scale, float bias) {
  const double factor = static_cast<double>(scale) * inv_std;
  const auto rounded = static_cast<float>(mean);
  const double lost = static_cast<double>(rounded) - mean;
  return {rounded, static_cast<float>(factor), static_cast<float>(static_cast<double>(bias) + lost * factor)};
}

// The lines of all channels, as arrays.
struct Lines {
  float *mean, *scale, *shift;
  Lines(std::vector<float>& memory, int64_t channels)
      : mean(memory.data()), scale(memory.data() + channels), shift(memory.data() + 2 * channels) {}
  void Set(int64_t channel, const Line& line) const { mean[channel] = line.mean, scale[channel] = line.scale, shift[channel] = line.shift; }
};

// dx = grad_scale (dy - mean_g - (x - mean) proj_scale).
struct GradientLine {
  float grad_scale, mean_g, proj_scale;
};

// From the sum of dy and the sum of dy (x - mean) over `count` elements.
inline GradientLine GradientLineOf(double sum, double product, double count, float scale, float inv_std) {
  const double scaled = product * static_cast<double>(inv_std);
  return {scale * inv_std, static_cast<float>(sum / count), static_cast<float>(scaled * static_cast<double>(inv_std) / count)};
}

// Rejects calls unless tensors of the shape of input `x` are all row-major or all channels-last, and each other operand has one number per
// channel, or is a float64 [2, channels]. With `half`, the former may have 16-bit elements if they are channels-last.
inline std::string RejectsChannels(const KernelCall& call, size_t x, bool half = false) {
  const OperandType& whole = call.inputs[x];
  if (whole.shape.rank() < 2) return "rank below 2";
  // Sums are float64 for every element type. With a batch of two, sums and x can have the same shape.
  if (whole.dtype == DType::kFloat64) return std::string(DTypeName(whole.dtype));
  const bool is_half = Is16BitFloat(whole.dtype);
  if (is_half && !(half && Channels(whole).innermost)) return std::string(DTypeName(whole.dtype));
  const Layout last = ChannelsLast(whole.shape.rank());
  const bool plain = whole.layout.plain();
  if (!plain && !SameMemoryOrder(whole.layout, last, whole.shape)) return "layout " + whole.layout.ToString();
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (!operand.present()) continue;
      if (operand.dtype == DType::kFloat64 && operand.shape == Shape{2, whole.shape[1]}) continue;
      const bool is_whole = operand.shape == whole.shape;
      if (operand.dtype != (is_half && is_whole ? whole.dtype : DType::kFloat32)) return std::string(DTypeName(operand.dtype));
      if (is_whole) {
        if (!SameMemoryOrder(operand.layout, whole.layout, whole.shape)) return "layout " + operand.layout.ToString();
      } else if (!operand.layout.plain()) {
        return "layout " + operand.layout.ToString();
      } else if (operand.shape.elements() != whole.shape[1]) {
        return operand.shape.ToString() + " beside " + whole.shape.ToString();
      }
    }
  }
  return "";
}

}  // namespace gradloom::batch_norm
