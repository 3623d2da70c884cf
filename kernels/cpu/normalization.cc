// LayerNormalization, RMSNormalization and their gradients.
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr int64_t kElementsPerThread = 1 << 13;

// All dimensions from `axis` on are normalized together.
struct Rows {
  int64_t rows, width;
  Rows(const Shape& shape, int64_t axis) {
    const int first = *NormalAxis(axis, shape.rank());
    rows = Product(shape, 0, first);
    width = Product(shape, first, shape.rank());
  }
};

class LayerNormalization : public Kernel {
 public:
  explicit LayerNormalization(const KernelCall& call)
      : loops_(BestLoops()),
        rows_(call.inputs[0].shape, call.attributes.Int("axis", -1)),
        epsilon_(static_cast<float>(call.attributes.Float("epsilon", 1e-5))),
        has_bias_(HasInput(call, 2)),
        has_mean_(HasOutput(call, 1)),
        has_inv_std_(HasOutput(call, 2)),
        threads_(ThreadsFor(call.inputs[0].shape.elements(), kElementsPerThread, call.threads)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const float* x = static_cast<const float*>(inputs[0]);
    const LayerNormArgs args{rows_.width, static_cast<const float*>(inputs[1]), has_bias_ ? static_cast<const float*>(inputs[2]) : nullptr,
                             epsilon_};
    ParallelFor(rows_.rows, threads_, [&](int64_t r) {
      loops_.layer_norm_row(args, x + r * rows_.width, static_cast<float*>(outputs[0]) + r * rows_.width,
                            has_mean_ ? static_cast<float*>(outputs[1]) + r : nullptr,
                            has_inv_std_ ? static_cast<float*>(outputs[2]) + r : nullptr);
    });
  }

 private:
  const Loops& loops_;
  Rows rows_;
  float epsilon_;
  bool has_bias_, has_mean_, has_inv_std_;
  int threads_;
};

// The gradients of scale and bias are sums over rows. They are computed in groups of rows, whose number depends only on the shape, each in
// its own part of the scratch memory.
constexpr int64_t kRowGroups = 16;

int64_t GroupFloats(int64_t width) { return AlignUp(2 * width, 16); }

int64_t LayerNormGradScratch(const KernelCall& call) {
  const Rows rows(call.inputs[1].shape, call.attributes.Int("axis", -1));
  // If the gradient of x is not wanted, it is written to a row of scratch memory.
  return (kRowGroups * GroupFloats(rows.width) + (HasOutput(call, 0) ? 0 : kRowGroups * rows.width)) * static_cast<int64_t>(sizeof(float));
}

class LayerNormGrad : public Kernel {
 public:
  explicit LayerNormGrad(const KernelCall& call)
      : loops_(BestLoops()),
        rows_(call.inputs[1].shape, call.attributes.Int("axis", -1)),
        epsilon_(static_cast<float>(call.attributes.Float("epsilon", 1e-5))),
        threads_(ThreadsFor(call.inputs[1].shape.elements(), kElementsPerThread, call.threads)) {
    for (size_t i = 0; i < 3; ++i) wanted_[i] = HasOutput(call, i);
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const float *dy = static_cast<const float*>(inputs[0]), *x = static_cast<const float*>(inputs[1]);
    const LayerNormArgs args{rows_.width, static_cast<const float*>(inputs[2]), nullptr, epsilon_};
    float* parts = static_cast<float*>(scratch);
    const int64_t width = rows_.width, stride = GroupFloats(width), per_group = (rows_.rows + kRowGroups - 1) / kRowGroups;
    ParallelFor(kRowGroups, threads_, [&](int64_t group) {
      float *dscale = parts + group * stride, *dbias = dscale + width;
      std::memset(dscale, 0, static_cast<size_t>(2 * width) * sizeof(float));
      for (int64_t r = group * per_group; r < std::min(rows_.rows, (group + 1) * per_group); ++r) {
        float* dx = wanted_[0] ? static_cast<float*>(outputs[0]) + r * width : parts + kRowGroups * stride + group * width;
        loops_.layer_norm_grad_row(args, dy + r * width, x + r * width, dx, dscale, dbias);
      }
    });
    for (size_t i = 1; i < 3; ++i) {
      if (!wanted_[i]) continue;
      float* to = static_cast<float*>(outputs[i]);
      loops_.fill(to, 0.0f, width);
      loops_.reduce_columns[static_cast<size_t>(Reduction::kSum)](parts + static_cast<int64_t>(i - 1) * width, kRowGroups, stride, width,
                                                                  to);
    }
  }

 private:
  const Loops& loops_;
  Rows rows_;
  float epsilon_;
  int threads_;
  bool wanted_[3] = {};
};

class RmsNormalization : public Kernel {
 public:
  explicit RmsNormalization(const KernelCall& call)
      : loops_(BestLoops()),
        rows_(call.inputs[0].shape, call.attributes.Int("axis", -1)),
        epsilon_(static_cast<float>(call.attributes.Float("epsilon", 1e-5))),
        threads_(ThreadsFor(call.inputs[0].shape.elements(), kElementsPerThread, call.threads)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const float* x = static_cast<const float*>(inputs[0]);
    const LayerNormArgs args{rows_.width, static_cast<const float*>(inputs[1]), nullptr, epsilon_};
    ParallelFor(rows_.rows, threads_,
                [&](int64_t r) { loops_.rms_norm_row(args, x + r * rows_.width, static_cast<float*>(outputs[0]) + r * rows_.width); });
  }

 private:
  const Loops& loops_;
  Rows rows_;
  float epsilon_;
  int threads_;
};

int64_t RmsNormGradScratch(const KernelCall& call) {
  const Rows rows(call.inputs[1].shape, call.attributes.Int("axis", -1));
  return kRowGroups * AlignUp(rows.width, 16) * static_cast<int64_t>(sizeof(float));
}

class RmsNormGrad : public Kernel {
 public:
  explicit RmsNormGrad(const KernelCall& call)
      : loops_(BestLoops()),
        rows_(call.inputs[1].shape, call.attributes.Int("axis", -1)),
        epsilon_(static_cast<float>(call.attributes.Float("epsilon", 1e-5))),
        threads_(ThreadsFor(call.inputs[1].shape.elements(), kElementsPerThread, call.threads)) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const float *dy = static_cast<const float*>(inputs[0]), *x = static_cast<const float*>(inputs[1]);
    const LayerNormArgs args{rows_.width, static_cast<const float*>(inputs[2]), nullptr, epsilon_};
    float *parts = static_cast<float*>(scratch), *dscale = static_cast<float*>(outputs[1]);
    const int64_t width = rows_.width, stride = AlignUp(width, 16), per_group = (rows_.rows + kRowGroups - 1) / kRowGroups;
    ParallelFor(kRowGroups, threads_, [&](int64_t group) {
      float* part = parts + group * stride;
      loops_.fill(part, 0.0f, width);
      for (int64_t r = group * per_group; r < std::min(rows_.rows, (group + 1) * per_group); ++r) {
        loops_.rms_norm_grad_row(args, dy + r * width, x + r * width, static_cast<float*>(outputs[0]) + r * width, part);
      }
    });
    loops_.fill(dscale, 0.0f, width);
    loops_.reduce_columns[static_cast<size_t>(Reduction::kSum)](parts, kRowGroups, stride, width, dscale);
  }

 private:
  const Loops& loops_;
  Rows rows_;
  float epsilon_;
  int threads_;
};

// Inputs from `vectors` on must be vectors over the normalized dimensions.
std::string RejectsRows(const KernelCall& call, size_t x, size_t vectors) {
  const Shape& shape = call.inputs[x].shape;
  if (!NormalAxis(call.attributes.Int("axis", -1), shape.rank())) return "axis out of range";
  const Rows rows(shape, call.attributes.Int("axis", -1));
  for (size_t i = vectors; i < call.inputs.size(); ++i) {
    if (call.inputs[i].present() && call.inputs[i].shape.elements() != rows.width) return "a scale or bias that is broadcast";
  }
  if (rows.width == 0) return "rows of nothing";
  return RejectsAllBut(call, DType::kFloat32);
}

constexpr Aliasing kInPlace[] = {{0, 0}};
constexpr Aliasing kGradInPlace[] = {{0, 0}, {0, 1}};

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.LayerNormalization",
             .op = "LayerNormalization",
             .domain = "",
             .rejects = [](const KernelCall& call) { return RejectsRows(call, 0, 1); },
             .may_alias = kInPlace},
     .make = MakeKernel<LayerNormalization>},
    {.row = {.name = "cpu.LayerNormGrad",
             .op = "LayerNormGrad",
             .domain = "gradloom",
             .rejects = [](const KernelCall& call) { return RejectsRows(call, 1, 2); },
             .may_alias = kGradInPlace,
             .scratch_bytes = LayerNormGradScratch},
     .make = MakeKernel<LayerNormGrad>},
    {.row = {.name = "cpu.RMSNormalization",
             .op = "RMSNormalization",
             .domain = "",
             .rejects = [](const KernelCall& call) { return RejectsRows(call, 0, 1); },
             .may_alias = kInPlace},
     .make = MakeKernel<RmsNormalization>},
    {.row = {.name = "cpu.RmsNormGrad",
             .op = "RmsNormGrad",
             .domain = "gradloom",
             .rejects = [](const KernelCall& call) { return RejectsRows(call, 1, 2); },
             .may_alias = kGradInPlace,
             .scratch_bytes = RmsNormGradScratch},
     .make = MakeKernel<RmsNormGrad>},
};

}  // namespace

std::span<const CpuKernel> CpuNormalizationKernels() { return kKernels; }

}  // namespace gradloom
