// Operators in float32 that map one axis after the other (kernels/reference/axis_maps.h). Rows of the result are computed in parallel. A
// row along the first axis whose extent changes is computed in memory that stays in the cache, one further axis after the other.
#pragma once

#include <string>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/cpu/operand_watch.h"
#include "kernels/reference/axis_maps.h"

namespace gradloom {

// The axes of a call in memory order. X is input 0 and Y output 0, in either direction.
struct SeparableSizes {
  std::vector<int> axes;  // logical axes, outermost first
  Shape x, y;             // physical
  int first = -1;         // the first axis whose extent changes, or -1
  int64_t outer = 1;      // elements before `first`
  int64_t row = 1;        // the most elements after `first` while the further axes are mapped

  explicit SeparableSizes(const KernelCall& call);
  int64_t row_floats() const;  // `row`, rounded up for alignment
};

// The map of one axis in the form that the loops use.
class AxisTaps {
 public:
  AxisTaps() = default;
  // `lines`: whether Line will be called.
  AxisTaps(const AxisMap& map, bool lines);

  int64_t in() const { return in_; }
  int64_t out() const { return out_; }

  // y[inner] = output element o, where each element is a row of `inner` numbers.
  void Row(int64_t o, const float* x, int64_t inner, float* y) const;
  // Maps one line: y[out] from x[in].
  void Line(const float* x, float* y) const;
  // Maps y[outer, out, inner] from x[outer, in, inner].
  void Apply(int64_t outer, int64_t inner, const float* x, float* y) const;

 private:
  void MakeTable();
  size_t taps(int64_t o) const { return starts_[static_cast<size_t>(o) + 1] - starts_[static_cast<size_t>(o)]; }
  template <int64_t kWidth>
  void LineOf(const float* x, float* y) const;

  int64_t in_ = 0, out_ = 0;
  std::vector<size_t> starts_;
  std::vector<int64_t> indices_;
  std::vector<float> weights_;
  int64_t width_ = 0;
  std::vector<int32_t> table_indices_;  // [out, width]
  std::vector<float> table_weights_;
  std::vector<int64_t> empty_;  // output elements without a tap
};

class SeparableKernel : public Kernel {
 public:
  void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) override;

  // Requires that input 0 and output 0 are float32 in the same layout without blocks, and that other operands are plain.
  static std::string Rejects(const KernelCall& call);
  static int64_t Scratch(const KernelCall& call);

 protected:
  // `transposed`: for the gradient, from Y's extents to X's.
  SeparableKernel(const KernelCall& call, bool transposed);

  const KernelCall& call() const { return call_; }

 private:
  // One map per logical axis, in the forward direction.
  virtual std::vector<AxisMap> Maps(const void* const* inputs) const = 0;

  // One axis of [outer, extent, inner].
  struct Step {
    AxisTaps taps;
    int64_t outer, inner;
  };

  void MakeRow(const float* plane, int64_t o, int64_t x_row, float* y, float* memory) const;
  void MakeWhole(const float* x, float* y) const;
  void MakeSteps(const void* const* inputs);

  const KernelCall call_;
  const bool transposed_;
  const SeparableSizes n_;
  const int threads_;
  OperandWatch watch_;
  AxisTaps first_;
  std::vector<Step> steps_;        // of a row, after the first axis
  std::vector<Step> whole_steps_;  // all axes, if one before the first is mapped although it keeps its extent
};

}  // namespace gradloom
