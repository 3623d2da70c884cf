// GatherElements and ScatterElements with indices that have the extents of the data except along the axis: rows of indices, element by
// element.
#include <atomic>
#include <cstring>
#include <string>

#include "kernels/cpu/families.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/parallel_bytes.h"
#include "kernels/reference/scatter_reduction.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr int64_t kElementsPerThread = 1 << 13;
constexpr int64_t kColumns = 16;

// Data [outer, extent, inner] and indices [outer, count, inner].
struct Elements {
  int64_t outer, extent, count, inner;

  explicit Elements(const KernelCall& call) {
    const Shape &data = call.inputs[0].shape, &indices = call.inputs[1].shape;
    const int axis = *NormalAxis(call.attributes.Int("axis", 0), data.rank());
    outer = Product(data, 0, axis);
    extent = data[axis];
    count = indices[axis];
    inner = Product(data, axis + 1, data.rank());
  }
};

class ElementKernel : public Kernel {
 protected:
  explicit ElementKernel(const KernelCall& call)
      : call_(call), n_(call), threads_(ThreadsFor(n_.outer * n_.count * n_.inner, kElementsPerThread, call.threads)) {}

  // Calls f with the indices as a typed pointer.
  template <typename F>
  void WithIndices(const void* indices, F f) const {
    if (call_.inputs[1].dtype == DType::kInt64) return f(static_cast<const int64_t*>(indices));
    f(static_cast<const int32_t*>(indices));
  }

  // Throws if an index is out of range, before anything is written.
  template <typename I>
  void Check(const I* indices) const {
    std::atomic<int64_t> bad{-1};
    ParallelRanges(n_.outer * n_.count * n_.inner, 1, threads_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (indices[i] < -n_.extent || indices[i] >= n_.extent) bad.store(i, std::memory_order_relaxed);
      }
    });
    if (const int64_t i = bad.load(std::memory_order_relaxed); i >= 0) {
      throw Error(ErrorCode::kData, call_.op + ": index " + std::to_string(static_cast<int64_t>(indices[i])) +
                                        " is out of range for an axis of " + std::to_string(n_.extent));
    }
  }

  template <typename I>
  int64_t NonNegative(I index) const {
    return index < 0 ? static_cast<int64_t>(index) + n_.extent : static_cast<int64_t>(index);
  }

  const KernelCall call_;
  const Elements n_;
  const int threads_;
};

class GatherElements : public ElementKernel {
 public:
  explicit GatherElements(const KernelCall& call) : ElementKernel(call) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    WithIndices(inputs[1], [&](const auto* indices) {
      Check(indices);
      WithWidth(call_.inputs[0].dtype, [&]<typename T>(T) {
        const T* x = static_cast<const T*>(inputs[0]);
        T* y = static_cast<T*>(outputs[0]);
        ParallelFor(n_.outer * n_.count, threads_, [&](int64_t row) {
          const T* from = x + row / n_.count * n_.extent * n_.inner;
          const auto* at = indices + row * n_.inner;
          T* to = y + row * n_.inner;
          for (int64_t j = 0; j < n_.inner; ++j) to[j] = from[NonNegative(at[j]) * n_.inner + j];
        });
      });
    });
  }
};

// Threads share the outer slices, or if there are few, the columns: updates of an element are applied in the order of the indices.
class ScatterElements : public ElementKernel {
 public:
  explicit ScatterElements(const KernelCall& call)
      : ElementKernel(call), adds_(ScatterReductionOf(call) == ScatterReduction::kAdd), by_columns_(n_.outer < threads_) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    WithIndices(inputs[1], [&](const auto* indices) {
      Check(indices);
      CopyBytes(outputs[0], inputs[0], call_.inputs[0].bytes(), call_.threads);
      if (adds_) {
        Scatter(indices, static_cast<const float*>(inputs[2]), static_cast<float*>(outputs[0]), [](float& to, float from) { to += from; });
        return;
      }
      WithWidth(call_.inputs[0].dtype, [&]<typename T>(T) {
        Scatter(indices, static_cast<const T*>(inputs[2]), static_cast<T*>(outputs[0]), [](T& to, T from) { to = from; });
      });
    });
  }

 private:
  template <typename I, typename T, typename F>
  void Scatter(const I* indices, const T* updates, T* to, F combine) const {
    const auto part = [&](int64_t o, int64_t begin, int64_t end) {
      T* slice = to + o * n_.extent * n_.inner;
      for (int64_t i = 0; i < n_.count; ++i) {
        const int64_t row = (o * n_.count + i) * n_.inner;
        for (int64_t j = begin; j < end; ++j) combine(slice[NonNegative(indices[row + j]) * n_.inner + j], updates[row + j]);
      }
    };
    if (!by_columns_) return ParallelFor(n_.outer, threads_, [&](int64_t o) { part(o, 0, n_.inner); });
    ParallelRanges(n_.inner, kColumns, threads_, [&](int64_t begin, int64_t end) {
      for (int64_t o = 0; o < n_.outer; ++o) part(o, begin, end);
    });
  }

  bool adds_, by_columns_;
};

std::string Rejects(const KernelCall& call, size_t inputs) {
  if (call.inputs.size() != inputs || call.outputs.size() != 1) return "an unexpected number of operands";
  if (std::string why = RejectsLayouts(call); !why.empty()) return why;
  const OperandType &data = call.inputs[0], &indices = call.inputs[1], &result = call.outputs[0];
  const int rank = data.shape.rank();
  const auto axis = NormalAxis(call.attributes.Int("axis", 0), rank);
  if (!axis || indices.shape.rank() != rank || rank == 0) return "indices of another rank";
  for (int a = 0; a < rank; ++a) {
    if (a != *axis && indices.shape[a] != data.shape[a]) return "indices for a part of the data";
  }
  if (indices.dtype != DType::kInt64 && indices.dtype != DType::kInt32) return "indices of type " + std::string(DTypeName(indices.dtype));
  if (result.dtype != data.dtype || !HasWidth(data.dtype)) return std::string(DTypeName(data.dtype));
  return result.shape == (inputs == 2 ? indices.shape : data.shape) ? "" : "a result of another shape";
}

std::string RejectsGather(const KernelCall& call) { return Rejects(call, 2); }

std::string RejectsScatter(const KernelCall& call) {
  if (std::string why = Rejects(call, 3); !why.empty()) return why;
  if (call.inputs[2].shape != call.inputs[1].shape || call.inputs[2].dtype != call.inputs[0].dtype) return "updates that do not fit";
  const std::string reduction = call.attributes.String("reduction", "none");
  if (reduction == "none") return "";
  if (reduction != "add") return "reduction " + reduction;
  return call.inputs[0].dtype == DType::kFloat32 ? "" : "sums of " + std::string(DTypeName(call.inputs[0].dtype));
}

constexpr Aliasing kInPlace[] = {{0, 0}};

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.GatherElements", .op = "GatherElements", .domain = "", .rejects = RejectsGather},
     .make = MakeKernel<GatherElements>},
    {.row = {.name = "cpu.ScatterElements", .op = "ScatterElements", .domain = "", .rejects = RejectsScatter, .may_alias = kInPlace},
     .make = MakeKernel<ScatterElements>},
};

}  // namespace

std::span<const CpuKernel> CpuElementIndexKernels() { return kKernels; }

}  // namespace gradloom
