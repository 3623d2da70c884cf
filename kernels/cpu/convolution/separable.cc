#include "kernels/cpu/convolution/separable.h"

#include <algorithm>

#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr int64_t kElementsPerThread = 1 << 14;
constexpr int64_t kMaxRow = int64_t{1} << 24;  // elements of a row in scratch memory: 64 MiB

// Whether the map is the identity.
bool ChangesNothing(const AxisMap& map) {
  if (map.identity) return true;
  if (map.in != map.out || map.indices.size() != static_cast<size_t>(map.in)) return false;
  for (size_t i = 0; i < map.indices.size(); ++i) {
    if (map.starts[i] != i || map.indices[i] != static_cast<int64_t>(i) || map.weights[i] != 1) return false;
  }
  return true;
}

}  // namespace

SeparableSizes::SeparableSizes(const KernelCall& call) : axes(call.inputs[0].layout.order) {
  const Shape &from = call.inputs[0].shape, &to = call.outputs[0].shape;
  if (axes.empty()) {
    for (int axis = 0; axis < from.rank(); ++axis) axes.push_back(axis);
  }
  for (int axis : axes) {
    x.push_back(from[axis]);
    y.push_back(to[axis]);
  }
  for (int at = 0; at < x.rank(); ++at) {
    if (first >= 0) {
      row *= std::max(x[at], y[at]);
    } else if (x[at] == y[at]) {
      outer *= x[at];
    } else {
      first = at;
    }
  }
}

int64_t SeparableSizes::row_floats() const { return AlignUp(row, kAlignmentBytes / static_cast<int64_t>(sizeof(float))); }

AxisTaps::AxisTaps(const AxisMap& map, bool lines) : in_(map.in), out_(map.out), starts_(map.starts), indices_(map.indices) {
  weights_.assign(map.weights.begin(), map.weights.end());
  if (lines) MakeTable();
}

void AxisTaps::Row(int64_t o, const float* x, int64_t inner, float* y) const {
  size_t k = starts_[static_cast<size_t>(o)];
  const size_t end = starts_[static_cast<size_t>(o) + 1];
  const auto row = [&](size_t at) { return x + indices_[at] * inner; };
  if (k == end) {
    std::fill_n(y, inner, 0.0f);
    return;
  }
  if (k + 1 == end) {
    const float* a = row(k);
    const float w = weights_[k];
    for (int64_t j = 0; j < inner; ++j) y[j] = w * a[j];
    return;
  }
  const float *a = row(k), *b = row(k + 1);
  const float v = weights_[k], w = weights_[k + 1];
  for (int64_t j = 0; j < inner; ++j) y[j] = v * a[j] + w * b[j];
  for (k += 2; k < end; ++k) {
    const float* c = row(k);
    const float u = weights_[k];
    for (int64_t j = 0; j < inner; ++j) y[j] += u * c[j];
  }
}

void AxisTaps::Line(const float* x, float* y) const {
  switch (width_) {
    case 1: LineOf<1>(x, y); break;
    case 2: LineOf<2>(x, y); break;
    case 3: LineOf<3>(x, y); break;
    case 4: LineOf<4>(x, y); break;
    default: LineOf<0>(x, y);
  }
  for (int64_t o : empty_) y[o] = 0;
}

void AxisTaps::Apply(int64_t outer, int64_t inner, const float* x, float* y) const {
  for (int64_t i = 0; i < outer; ++i, x += in_ * inner, y += out_ * inner) {
    if (inner == 1) {
      Line(x, y);
    } else {
      for (int64_t o = 0; o < out_; ++o) Row(o, x, inner, y + o * inner);
    }
  }
}

// Gives all output elements the same number of taps: the last tap of an element with fewer is halved repeatedly, which is exact.
void AxisTaps::MakeTable() {
  for (int64_t o = 0; o < out_; ++o) width_ = std::max(width_, static_cast<int64_t>(taps(o)));
  table_indices_.assign(static_cast<size_t>(width_ * out_), 0);
  table_weights_.assign(static_cast<size_t>(width_ * out_), 0.0f);
  for (int64_t o = 0; o < out_; ++o) {
    const size_t begin = starts_[static_cast<size_t>(o)], count = taps(o), first = static_cast<size_t>(o * width_);
    if (count == 0) empty_.push_back(o);
    for (size_t k = 0; k < count; ++k) {
      table_indices_[first + k] = static_cast<int32_t>(indices_[begin + k]);
      table_weights_[first + k] = weights_[begin + k];
    }
    for (size_t k = std::max<size_t>(count, 1); count > 0 && k < static_cast<size_t>(width_); ++k) {
      table_indices_[first + k] = table_indices_[first + k - 1];
      table_weights_[first + k] = table_weights_[first + k - 1] /= 2;
    }
  }
}

// kWidth: the width of the table as a compile-time constant; 0: any.
template <int64_t kWidth>
void AxisTaps::LineOf(const float* x, float* y) const {
  const int64_t width = kWidth > 0 ? kWidth : width_;
  const int32_t* index = table_indices_.data();
  const float* weight = table_weights_.data();
  for (int64_t o = 0; o < out_; ++o, index += width, weight += width) {
    float sum = 0;
    for (int64_t k = 0; k < width; ++k) sum += weight[k] * x[index[k]];
    y[o] = sum;
  }
}

SeparableKernel::SeparableKernel(const KernelCall& call, bool transposed)
    : call_(call),
      transposed_(transposed),
      n_(call),
      threads_(ThreadsFor(std::max(n_.x.elements(), n_.y.elements()), kElementsPerThread, call.threads)) {}

void SeparableKernel::Run(const void* const* inputs, void* const* outputs, void* scratch, void*) {
  watch_.RebuildIfChanged(call_, inputs, [&] { MakeSteps(inputs); });
  const float* x = static_cast<const float*>(inputs[0]);
  float* y = static_cast<float*>(outputs[0]);
  if (!whole_steps_.empty()) return MakeWhole(x, y);
  const int64_t in = n_.x[n_.first], out = n_.y[n_.first];
  const int64_t x_row = Product(n_.x, n_.first + 1, n_.x.rank()), y_row = Product(n_.y, n_.first + 1, n_.y.rank());
  ParallelRanges(n_.outer * out, 1, threads_, [&](int64_t begin, int64_t end) {
    float* memory = static_cast<float*>(scratch) + 2 * n_.row_floats() * ThreadIndex();
    for (int64_t i = begin; i < end; ++i) MakeRow(x + i / out * in * x_row, i % out, x_row, y + i * y_row, memory);
  });
}

// Row o of one plane.
void SeparableKernel::MakeRow(const float* plane, int64_t o, int64_t x_row, float* y, float* memory) const {
  float *made = memory, *spare = memory + n_.row_floats();
  first_.Row(o, plane, x_row, steps_.empty() ? y : made);
  for (size_t s = 0; s < steps_.size(); ++s) {
    steps_[s].taps.Apply(steps_[s].outer, steps_[s].inner, made, s + 1 == steps_.size() ? y : spare);
    std::swap(made, spare);
  }
}

void SeparableKernel::MakeWhole(const float* x, float* y) const {
  std::vector<float> made(x, x + n_.x.elements()), next;
  for (const Step& step : whole_steps_) {
    next.resize(static_cast<size_t>(step.outer * step.taps.out() * step.inner));
    step.taps.Apply(step.outer, step.inner, made.data(), next.data());
    std::swap(made, next);
  }
  std::copy(made.begin(), made.end(), y);
}

void SeparableKernel::MakeSteps(const void* const* inputs) {
  const std::vector<AxisMap> maps = Maps(inputs);
  std::vector<Step> all;
  steps_.clear();
  whole_steps_.clear();
  Shape now = n_.x;
  bool usual = true;
  for (int at = 0; at < now.rank(); ++at) {
    const AxisMap& map = maps[static_cast<size_t>(n_.axes[static_cast<size_t>(at)])];
    if (ChangesNothing(map)) continue;
    usual = usual && at >= n_.first;
    const int64_t inner = Product(now, at + 1, now.rank());
    const AxisTaps taps(transposed_ ? map.Transposed() : map, inner == 1);
    all.push_back({taps, Product(now, 0, at), inner});
    if (at == n_.first) first_ = taps;
    if (at > n_.first) steps_.push_back({taps, Product(now, n_.first + 1, at), inner});
    now[at] = n_.y[at];
  }
  if (!usual) whole_steps_ = std::move(all);
}

std::string SeparableKernel::Rejects(const KernelCall& call) {
  if (call.inputs.empty() || call.outputs.size() != 1) return "an unexpected number of operands";
  const OperandType &x = call.inputs[0], &y = call.outputs[0];
  if (x.dtype != DType::kFloat32 || y.dtype != DType::kFloat32) return std::string(DTypeName(x.dtype));
  if (x.shape.rank() != y.shape.rank()) return "another rank";
  if (!x.layout.blocks.empty() || x.layout != y.layout) return "layout " + x.layout.ToString();
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    if (call.inputs[i].present() && !call.inputs[i].layout.plain()) return "layout " + call.inputs[i].layout.ToString();
  }
  const SeparableSizes n(call);
  if (n.first < 0) return "no extent changes";
  return n.row > kMaxRow || n.x.elements() == 0 || n.y.elements() == 0 ? "extents" : "";
}

int64_t SeparableKernel::Scratch(const KernelCall& call) {
  return std::max(call.threads, 1) * 2 * SeparableSizes(call).row_floats() * static_cast<int64_t>(sizeof(float));
}

}  // namespace gradloom
