// Gathering rows by index and adding to rows by index, the basis of embeddings.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "kernels/cpu/families.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/parallel_bytes.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr int64_t kBytesPerThread = 1 << 16;

[[noreturn]] void RefuseIndex(const KernelCall& call, int64_t index, int64_t extent) {
  throw Error(ErrorCode::kData, call.op + ": index " + std::to_string(index) + " is out of range for an axis of " + std::to_string(extent));
}

// A tensor as [outer, extent, inner] around an axis.
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

// The rows selected by the indices, if there are several outer ones. Consecutive rows form runs, which are moved at once (windows along an
// axis, the halves of a flip, channels). Uses memory of the caller.
class RowRuns {
 public:
  struct Run {
    int64_t from, to, rows;  // first row in the table, first row in the result, number of rows
  };

  static int64_t Bytes(const Table& table, int64_t count) { return table.outer > 1 ? count * static_cast<int64_t>(sizeof(Run)) : 0; }

  // Runs have at most kBytesPerThread bytes or one row, so that threads can share a long one. Throws Error(kData) if an index is out of
  // range.
  RowRuns(const KernelCall& call, const Table& table, int64_t row_bytes, DType dtype, const void* indices, int64_t count, void* memory)
      : first_(static_cast<Run*>(memory)) {
    const int64_t most_rows = kBytesPerThread / std::max<int64_t>(row_bytes, 1);
    Run* last = first_ - 1;
    for (int64_t i = 0; i < count; ++i) {
      int64_t index = IndexAt(dtype, indices, i);
      if (index < -table.extent || index >= table.extent) RefuseIndex(call, index, table.extent);
      if (index < 0) index += table.extent;
      if (last >= first_ && last->from + last->rows == index && last->rows < most_rows) {
        ++last->rows;
      } else {
        *++last = {index, i, 1};
      }
    }
    count_ = last + 1 - first_;
  }

  int64_t size() const { return count_; }

  // Calls f(outer, run) for runs [begin, end), counted over all outer rows.
  template <typename F>
  void ForEach(int64_t begin, int64_t end, F&& f) const {
    int64_t outer = begin / count_, run = begin % count_;
    for (int64_t i = begin; i < end; ++i) {
      f(outer, first_[run]);
      if (++run == count_) run = 0, ++outer;
    }
  }

 private:
  Run* first_;
  int64_t count_;
};

class Gather : public Kernel {
 public:
  explicit Gather(const KernelCall& call)
      : call_(call),
        table_(TableOf(call)),
        count_(call.inputs[1].shape.elements()),
        row_bytes_(table_.inner * DTypeBytes(call.inputs[0].dtype)),
        threads_(ThreadsFor(call.outputs[0].bytes(), kBytesPerThread, call.threads)) {}

  static int64_t Scratch(const KernelCall& call) { return RowRuns::Bytes(TableOf(call), call.inputs[1].shape.elements()); }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const char* const from = static_cast<const char*>(inputs[0]);
    char* const to = static_cast<char*>(outputs[0]);
    if (row_bytes_ == 0 || count_ == 0 || table_.outer == 0) return;
    if (table_.outer == 1) return Rows(from, inputs[1], to);
    const RowRuns runs(call_, table_, row_bytes_, call_.inputs[1].dtype, inputs[1], count_, scratch);
    ParallelRanges(table_.outer * runs.size(), 1, threads_, [&](int64_t begin, int64_t end) {
      runs.ForEach(begin, end, [&](int64_t outer, const RowRuns::Run& run) {
        const char* const a = from + (outer * table_.extent + run.from) * row_bytes_;
        char* const b = to + (outer * count_ + run.to) * row_bytes_;
        const int64_t bytes = run.rows * row_bytes_;
        if (bytes == 4) {
          std::memcpy(b, a, 4);  // a single move, faster than a call
        } else {
          std::memcpy(b, a, static_cast<size_t>(bytes));
        }
      });
    });
  }

 private:
  static Table TableOf(const KernelCall& call) { return Table(call.inputs[0].shape, call.attributes.Int("axis", 0)); }

  void Rows(const char* from, const void* indices, char* to) const {
    const DType dtype = call_.inputs[1].dtype;
    std::atomic<int64_t> bad{-1};
    ParallelFor(count_, threads_, [&](int64_t i) {
      int64_t index = IndexAt(dtype, indices, i);
      if (index < 0) index += table_.extent;
      if (index < 0 || index >= table_.extent) {
        bad.store(i, std::memory_order_relaxed);
        return;
      }
      std::memcpy(to + i * row_bytes_, from + index * row_bytes_, static_cast<size_t>(row_bytes_));
    });
    if (const int64_t i = bad.load(std::memory_order_relaxed); i >= 0) RefuseIndex(call_, IndexAt(dtype, indices, i), table_.extent);
  }

  KernelCall call_;
  Table table_;
  int64_t count_, row_bytes_;
  int threads_;
};

// gradloom.GatherGrad(indices, grad) {axis, shape}. Threads share the outer rows, or the columns if there are few outer rows, so that each
// sum is in the order of the indices.
class GatherGrad : public Kernel {
 public:
  explicit GatherGrad(const KernelCall& call)
      : call_(call),
        table_(TableOf(call)),
        count_(call.inputs[0].shape.elements()),
        threads_(ThreadsFor(call.inputs[1].bytes() + call.outputs[0].bytes(), kBytesPerThread, call.threads)) {}

  static int64_t Scratch(const KernelCall& call) { return RowRuns::Bytes(TableOf(call), call.inputs[0].shape.elements()); }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const float* const from = static_cast<const float*>(inputs[1]);
    float* const to = static_cast<float*>(outputs[0]);
    const int64_t inner = table_.inner, plane = table_.extent * inner;
    if (table_.outer == 1 || (table_.outer < threads_ && inner >= 16 * threads_)) return Columns(inputs[0], from, to);
    const RowRuns runs(call_, table_, inner * static_cast<int64_t>(sizeof(float)), call_.inputs[0].dtype, inputs[0], count_, scratch);
    ParallelRanges(table_.outer, 1, threads_, [&](int64_t begin, int64_t end) {
      std::fill_n(to + begin * plane, (end - begin) * plane, 0.0f);
      if (runs.size() == 0) return;
      runs.ForEach(begin * runs.size(), end * runs.size(), [&](int64_t outer, const RowRuns::Run& run) {
        const float* const a = from + (outer * count_ + run.to) * inner;
        float* const b = to + outer * plane + run.from * inner;
        for (int64_t j = 0; j < run.rows * inner; ++j) b[j] += a[j];
      });
    });
  }

 private:
  static Table TableOf(const KernelCall& call) { return Table(call.outputs[0].shape, call.attributes.Int("axis", 0)); }

  void Columns(const void* indices, const float* from, float* to) const {
    const DType dtype = call_.inputs[0].dtype;
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t index = IndexAt(dtype, indices, i);
      if (index < -table_.extent || index >= table_.extent) RefuseIndex(call_, index, table_.extent);
    }
    const int64_t inner = table_.inner;
    ParallelRanges(table_.outer * table_.extent * inner, 16, threads_,
                   [&](int64_t begin, int64_t end) { std::fill(to + begin, to + end, 0.0f); });
    ParallelRanges(inner, 16, threads_, [&](int64_t begin, int64_t end) {
      for (int64_t o = 0; o < table_.outer; ++o) {
        for (int64_t i = 0; i < count_; ++i) {
          int64_t index = IndexAt(dtype, indices, i);
          if (index < 0) index += table_.extent;
          const float* a = from + (o * count_ + i) * inner;
          float* b = to + (o * table_.extent + index) * inner;
          for (int64_t j = begin; j < end; ++j) b[j] += a[j];
        }
      }
    });
  }

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

// gradloom.SetRow(x, i, row): in place, only the row is copied.
class SetRow : public Kernel {
 public:
  explicit SetRow(const KernelCall& call) : call_(call), row_bytes_(static_cast<size_t>(call.inputs[2].bytes())) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const int64_t given = *static_cast<const int64_t*>(inputs[1]), extent = call_.inputs[0].shape[0];
    if (given < -extent || given >= extent) RefuseIndex(call_, given, extent);
    const int64_t place = given < 0 ? given + extent : given;
    CopyBytes(outputs[0], inputs[0], call_.outputs[0].bytes(), call_.threads);
    if (row_bytes_ > 0) std::memcpy(static_cast<char*>(outputs[0]) + static_cast<size_t>(place) * row_bytes_, inputs[2], row_bytes_);
  }

 private:
  KernelCall call_;
  size_t row_bytes_;
};

std::string RejectsSetRow(const KernelCall& call) {
  if (call.inputs.size() != 3 || call.outputs.size() != 1) return "not three inputs and one output";
  const OperandType &x = call.inputs[0], &place = call.inputs[1], &row = call.inputs[2];
  const Shape& all = x.shape;
  const bool fits = x.layout.plain() && row.layout.plain() && call.outputs[0].layout.plain() && all.rank() > 0 &&
                    call.outputs[0].shape == all && row.shape == Shape(std::vector<int64_t>(all.begin() + 1, all.end())) &&
                    row.dtype == x.dtype && call.outputs[0].dtype == x.dtype;
  if (!fits) return "a row of another type";
  return place.dtype == DType::kInt64 && place.shape.elements() == 1 ? "" : "an index that is not a single int64";
}

constexpr Aliasing kRowInPlace[] = {{0, 0}};

std::string RejectsGather(const KernelCall& call) { return RejectsIndices(call, 1, call.inputs[0].shape); }

std::string RejectsGatherGrad(const KernelCall& call) {
  if (call.outputs[0].dtype != DType::kFloat32) return std::string(DTypeName(call.outputs[0].dtype));
  return RejectsIndices(call, 0, call.outputs[0].shape);
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.Gather", .op = "Gather", .domain = "", .rejects = RejectsGather, .scratch_bytes = Gather::Scratch},
     .make = MakeKernel<Gather>},
    {.row = {.name = "cpu.GatherGrad",
             .op = "GatherGrad",
             .domain = "gradloom",
             .rejects = RejectsGatherGrad,
             .scratch_bytes = GatherGrad::Scratch},
     .make = MakeKernel<GatherGrad>},
    {.row = {.name = "cpu.SetRow", .op = "SetRow", .domain = "gradloom", .rejects = RejectsSetRow, .may_alias = kRowInPlace},
     .make = MakeKernel<SetRow>},
};

}  // namespace

std::span<const CpuKernel> CpuIndexKernels() { return kKernels; }

}  // namespace gradloom
