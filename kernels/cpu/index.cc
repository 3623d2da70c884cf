// Rows by index, and the sums that go back to them: what embeddings are made of.
#include <atomic>
#include <cstring>
#include <string>

#include "kernels/cpu/families.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr int64_t kBytesPerThread = 1 << 16;

[[noreturn]] void RefuseIndex(const KernelCall& call, int64_t index, int64_t extent) {
  throw Error(ErrorCode::kData, call.op + ": index " + std::to_string(index) + " is out of range for an axis of " + std::to_string(extent));
}

// A tensor as [outer, extent, inner] about an axis.
struct Table {
  int64_t outer, extent, inner;
  Table(const Shape& shape, int64_t axis) {
    const int at = *NormalAxis(axis, shape.rank());
    outer = Product(shape, 0, at);
    extent = shape[at];
    inner = Product(shape, at + 1, shape.rank());
  }
};

int64_t IndexAt(DType dtype, const void* indices, int64_t i) {
  return dtype == DType::kInt64 ? static_cast<const int64_t*>(indices)[i] : static_cast<const int32_t*>(indices)[i];
}

class Gather : public Kernel {
 public:
  explicit Gather(const KernelCall& call)
      : call_(call),
        table_(call.inputs[0].shape, call.attributes.Int("axis", 0)),
        count_(call.inputs[1].shape.elements()),
        row_bytes_(static_cast<size_t>(table_.inner * DTypeBytes(call.inputs[0].dtype))),
        threads_(ThreadsFor(call.outputs[0].bytes(), kBytesPerThread, call.threads)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const char* from = static_cast<const char*>(inputs[0]);
    char* to = static_cast<char*>(outputs[0]);
    const DType dtype = call_.inputs[1].dtype;
    std::atomic<int64_t> bad{-1};
    ParallelFor(table_.outer * count_, threads_, [&](int64_t i) {
      int64_t index = IndexAt(dtype, inputs[1], i % count_);
      if (index < 0) index += table_.extent;
      if (index < 0 || index >= table_.extent) {
        bad.store(i % count_, std::memory_order_relaxed);
        return;
      }
      const auto row = static_cast<size_t>(i / count_ * table_.extent + index);
      if (row_bytes_ > 0) std::memcpy(to + static_cast<size_t>(i) * row_bytes_, from + row * row_bytes_, row_bytes_);
    });
    if (const int64_t i = bad.load(std::memory_order_relaxed); i >= 0) RefuseIndex(call_, IndexAt(dtype, inputs[1], i), table_.extent);
  }

 private:
  KernelCall call_;
  Table table_;
  int64_t count_;
  size_t row_bytes_;
  int threads_;
};

// gradloom.GatherGrad(indices, grad) {axis, shape}. Threads share the columns of the rows, so that each sum
// runs in the order of the indices.
class GatherGrad : public Kernel {
 public:
  explicit GatherGrad(const KernelCall& call)
      : call_(call),
        table_(call.outputs[0].shape, call.attributes.Int("axis", 0)),
        count_(call.inputs[0].shape.elements()),
        threads_(ThreadsFor(call.inputs[1].bytes() + call.outputs[0].bytes(), kBytesPerThread, call.threads)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const DType dtype = call_.inputs[0].dtype;
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t index = IndexAt(dtype, inputs[0], i);
      if (index < -table_.extent || index >= table_.extent) RefuseIndex(call_, index, table_.extent);
    }
    const float* from = static_cast<const float*>(inputs[1]);
    float* to = static_cast<float*>(outputs[0]);
    ParallelRanges(table_.outer * table_.extent * table_.inner, 16, threads_,
                   [&](int64_t begin, int64_t end) { std::memset(to + begin, 0, static_cast<size_t>(end - begin) * sizeof(float)); });
    const int64_t inner = table_.inner;
    ParallelRanges(inner, 16, threads_, [&](int64_t begin, int64_t end) {
      for (int64_t o = 0; o < table_.outer; ++o) {
        for (int64_t i = 0; i < count_; ++i) {
          int64_t index = IndexAt(dtype, inputs[0], i);
          if (index < 0) index += table_.extent;
          const float* a = from + (o * count_ + i) * inner;
          float* b = to + (o * table_.extent + index) * inner;
          for (int64_t j = begin; j < end; ++j) b[j] += a[j];
        }
      }
    });
  }

 private:
  KernelCall call_;
  Table table_;
  int64_t count_;
  int threads_;
};

std::string RejectsIndices(const KernelCall& call, size_t indices, const Shape& table) {
  if (!NormalAxis(call.attributes.Int("axis", 0), table.rank())) return "axis out of range";
  const DType dtype = call.inputs[indices].dtype;
  if (dtype != DType::kInt64 && dtype != DType::kInt32) return "indices of type " + std::string(DTypeName(dtype));
  return RejectsLayouts(call);
}

// gradloom.SetRow(x, i, row): in place, the row is all that moves.
class SetRow : public Kernel {
 public:
  explicit SetRow(const KernelCall& call)
      : call_(call), bytes_(static_cast<size_t>(call.outputs[0].bytes())), row_bytes_(static_cast<size_t>(call.inputs[2].bytes())) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const int64_t place = *static_cast<const int64_t*>(inputs[1]), extent = call_.inputs[0].shape[0];
    if (place < 0 || place >= extent) RefuseIndex(call_, place, extent);
    if (inputs[0] != outputs[0] && bytes_ > 0) std::memcpy(outputs[0], inputs[0], bytes_);
    if (row_bytes_ > 0) std::memcpy(static_cast<char*>(outputs[0]) + static_cast<size_t>(place) * row_bytes_, inputs[2], row_bytes_);
  }

 private:
  KernelCall call_;
  size_t bytes_, row_bytes_;
};

std::string RejectsSetRow(const KernelCall& call) {
  if (call.inputs.size() != 3 || call.outputs.size() != 1) return "not three inputs and one output";
  const OperandType &x = call.inputs[0], &place = call.inputs[1], &row = call.inputs[2];
  const Shape& all = x.shape;
  const bool fits = x.layout.plain() && row.layout.plain() && call.outputs[0].layout.plain() && all.rank() > 0 &&
                    call.outputs[0].shape == all && row.shape == Shape(std::vector<int64_t>(all.begin() + 1, all.end())) &&
                    row.dtype == x.dtype && call.outputs[0].dtype == x.dtype;
  if (!fits) return "a row of another type";
  return place.dtype == DType::kInt64 && place.shape.elements() == 1 ? "" : "a place that is no single int64";
}

constexpr Aliasing kRowInPlace[] = {{0, 0}};

std::string RejectsGather(const KernelCall& call) { return RejectsIndices(call, 1, call.inputs[0].shape); }

std::string RejectsGatherGrad(const KernelCall& call) {
  if (call.outputs[0].dtype != DType::kFloat32) return std::string(DTypeName(call.outputs[0].dtype));
  return RejectsIndices(call, 0, call.outputs[0].shape);
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.Gather", .op = "Gather", .domain = "", .rejects = RejectsGather}, .make = MakeKernel<Gather>},
    {.row = {.name = "cpu.GatherGrad", .op = "GatherGrad", .domain = "gradloom", .rejects = RejectsGatherGrad},
     .make = MakeKernel<GatherGrad>},
    {.row = {.name = "cpu.SetRow", .op = "SetRow", .domain = "gradloom", .rejects = RejectsSetRow, .may_alias = kRowInPlace},
     .make = MakeKernel<SetRow>},
};

}  // namespace

std::span<const CpuKernel> CpuIndexKernels() { return kKernels; }

}  // namespace gradloom
