// GatherND, its gradient, and ScatterND: slices of a tensor selected by index tuples.
#include <algorithm>
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

constexpr int64_t kBytesPerThread = 1 << 16;
constexpr int64_t kColumns = 16;

// Each tuple has `width` indices, which follow `batch_dims` axes common to data and indices, and selects a piece of the data.
class Tuples {
 public:
  Tuples(const Shape& data, const Shape& indices, int batch_dims) {
    width_ = static_cast<int>(indices[indices.rank() - 1]);
    count_ = Product(indices, 0, indices.rank() - 1);
    piece_ = Product(data, batch_dims + width_, data.rank());
    const int64_t batches = Product(data, 0, batch_dims);
    per_batch_ = batches == 0 ? 1 : std::max<int64_t>(count_ / batches, 1);
    batch_ = Product(data, batch_dims, data.rank());
    int64_t stride = batch_;
    for (int k = 0; k < width_; ++k) {
      extents_.push_back(data[batch_dims + k]);
      stride /= std::max<int64_t>(extents_.back(), 1);
      strides_.push_back(stride);
    }
  }

  // "" if the index tuples fit the data.
  static std::string Rejects(const Shape& data, const OperandType& indices, int64_t batch_dims) {
    if (indices.dtype != DType::kInt64) return "indices of type " + std::string(DTypeName(indices.dtype));
    const Shape& shape = indices.shape;
    if (batch_dims < 0 || batch_dims >= shape.rank() || batch_dims + shape[shape.rank() - 1] > data.rank()) return "tuples that do not fit";
    for (int axis = 0; axis < batch_dims; ++axis) {
      if (shape[axis] != data[axis]) return "tuples of another batch";
    }
    return "";
  }

  int64_t count() const { return count_; }
  int64_t piece() const { return piece_; }

  // Throws Error(kData) if an index is out of range.
  void Check(const std::string& op, const int64_t* indices, int threads) const {
    std::atomic<int64_t> bad{-1};
    ParallelFor(count_, threads, [&](int64_t i) {
      for (int k = 0; k < width_; ++k) {
        const int64_t index = indices[i * width_ + k], extent = extents_[static_cast<size_t>(k)];
        if (index < -extent || index >= extent) bad.store(i * width_ + k, std::memory_order_relaxed);
      }
    });
    const int64_t i = bad.load(std::memory_order_relaxed);
    if (i < 0) return;
    throw Error(ErrorCode::kData, op + ": index " + std::to_string(indices[i]) + " is out of range for an axis of " +
                                      std::to_string(extents_[static_cast<size_t>(i % width_)]));
  }

  // The offset of the piece of tuple i, whose indices must have been checked.
  int64_t OffsetOf(const int64_t* indices, int64_t i) const {
    int64_t offset = i / per_batch_ * batch_;
    for (int k = 0; k < width_; ++k) {
      const int64_t index = indices[i * width_ + k];
      const auto at = static_cast<size_t>(k);
      offset += (index < 0 ? index + extents_[at] : index) * strides_[at];
    }
    return offset;
  }

  // Calls f(offset in the data, offset in the sequence of pieces, elements) for all tuples in order. Threads share the columns of the
  // pieces, so that updates of an element are applied in that order.
  template <typename F>
  void ForEachPiece(const int64_t* indices, int threads, F f) const {
    ParallelRanges(piece_, kColumns, static_cast<int>(std::min<int64_t>(threads, (piece_ + kColumns - 1) / kColumns)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = 0; i < count_; ++i) f(OffsetOf(indices, i) + begin, i * piece_ + begin, end - begin);
                   });
  }

 private:
  int width_;
  int64_t count_, piece_, per_batch_, batch_;
  std::vector<int64_t> extents_, strides_;
};

int BatchDims(const KernelCall& call) { return static_cast<int>(call.attributes.Int("batch_dims", 0)); }

class GatherNd : public Kernel {
 public:
  explicit GatherNd(const KernelCall& call)
      : tuples_(call.inputs[0].shape, call.inputs[1].shape, BatchDims(call)),
        element_bytes_(DTypeBytes(call.inputs[0].dtype)),
        threads_(ThreadsFor(call.outputs[0].bytes() + call.inputs[1].bytes(), kBytesPerThread, call.threads)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const auto* indices = static_cast<const int64_t*>(inputs[1]);
    tuples_.Check("GatherND", indices, threads_);
    const auto* from = static_cast<const char*>(inputs[0]);
    auto* to = static_cast<char*>(outputs[0]);
    const int64_t bytes = tuples_.piece() * element_bytes_;
    if (bytes == 0) return;
    ParallelFor(tuples_.count(), threads_, [&](int64_t i) {
      std::memcpy(to + i * bytes, from + tuples_.OffsetOf(indices, i) * element_bytes_, static_cast<size_t>(bytes));
    });
  }

 private:
  Tuples tuples_;
  int64_t element_bytes_;
  int threads_;
};

// gradloom.GatherNDGrad(indices, grad) {batch_dims, shape}.
class GatherNdGrad : public Kernel {
 public:
  explicit GatherNdGrad(const KernelCall& call)
      : tuples_(call.outputs[0].shape, call.inputs[0].shape, BatchDims(call)),
        elements_(call.outputs[0].shape.elements()),
        threads_(ThreadsFor(call.inputs[1].bytes() + call.outputs[0].bytes(), kBytesPerThread, call.threads)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const auto* indices = static_cast<const int64_t*>(inputs[0]);
    tuples_.Check("GatherNDGrad", indices, threads_);
    const auto* from = static_cast<const float*>(inputs[1]);
    auto* to = static_cast<float*>(outputs[0]);
    ZeroBytes(to, elements_ * static_cast<int64_t>(sizeof(float)), threads_);
    tuples_.ForEachPiece(indices, threads_, [&](int64_t offset, int64_t piece, int64_t n) {
      for (int64_t j = 0; j < n; ++j) to[offset + j] += from[piece + j];
    });
  }

 private:
  Tuples tuples_;
  int64_t elements_;
  int threads_;
};

class ScatterNd : public Kernel {
 public:
  explicit ScatterNd(const KernelCall& call)
      : tuples_(call.inputs[0].shape, call.inputs[1].shape, 0),
        bytes_(call.inputs[0].bytes()),
        element_bytes_(DTypeBytes(call.inputs[0].dtype)),
        adds_(ScatterReductionOf(call) == ScatterReduction::kAdd),
        copy_threads_(call.threads),
        threads_(ThreadsFor(call.inputs[1].bytes() + call.inputs[2].bytes(), kBytesPerThread, call.threads)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const auto* indices = static_cast<const int64_t*>(inputs[1]);
    tuples_.Check("ScatterND", indices, threads_);
    auto* to = static_cast<char*>(outputs[0]);
    CopyBytes(to, inputs[0], bytes_, copy_threads_);
    if (adds_) {
      const auto* from = static_cast<const float*>(inputs[2]);
      auto* sums = static_cast<float*>(outputs[0]);
      tuples_.ForEachPiece(indices, threads_, [&](int64_t offset, int64_t piece, int64_t n) {
        for (int64_t j = 0; j < n; ++j) sums[offset + j] += from[piece + j];
      });
      return;
    }
    const auto* from = static_cast<const char*>(inputs[2]);
    tuples_.ForEachPiece(indices, threads_, [&](int64_t offset, int64_t piece, int64_t n) {
      std::memcpy(to + offset * element_bytes_, from + piece * element_bytes_, static_cast<size_t>(n * element_bytes_));
    });
  }

 private:
  Tuples tuples_;
  int64_t bytes_, element_bytes_;
  bool adds_;
  int copy_threads_, threads_;
};

std::string RejectsGather(const KernelCall& call) {
  if (std::string why = RejectsLayouts(call); !why.empty()) return why;
  if (call.outputs[0].dtype != call.inputs[0].dtype || DTypeBytes(call.inputs[0].dtype) == 0)
    return std::string(DTypeName(call.inputs[0].dtype));
  return Tuples::Rejects(call.inputs[0].shape, call.inputs[1], call.attributes.Int("batch_dims", 0));
}

std::string RejectsGatherGrad(const KernelCall& call) {
  if (std::string why = RejectsLayouts(call); !why.empty()) return why;
  if (call.outputs[0].dtype != DType::kFloat32 || call.inputs[1].dtype != DType::kFloat32)
    return std::string(DTypeName(call.outputs[0].dtype));
  return Tuples::Rejects(call.outputs[0].shape, call.inputs[0], call.attributes.Int("batch_dims", 0));
}

std::string RejectsScatter(const KernelCall& call) {
  if (std::string why = RejectsLayouts(call); !why.empty()) return why;
  const OperandType &data = call.inputs[0], &indices = call.inputs[1], &updates = call.inputs[2];
  if (std::string why = Tuples::Rejects(data.shape, indices, 0); !why.empty()) return why;
  const Tuples tuples(data.shape, indices.shape, 0);
  const bool fits = updates.dtype == data.dtype && call.outputs[0].dtype == data.dtype && call.outputs[0].shape == data.shape &&
                    updates.shape.elements() == tuples.count() * tuples.piece();
  if (!fits) return "updates that do not fit";
  const std::string reduction = call.attributes.String("reduction", "none");
  if (reduction == "none") return DTypeBytes(data.dtype) > 0 ? "" : std::string(DTypeName(data.dtype));
  if (reduction != "add") return "reduction " + reduction;
  return data.dtype == DType::kFloat32 ? "" : "sums of " + std::string(DTypeName(data.dtype));
}

constexpr Aliasing kInPlace[] = {{0, 0}};

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.GatherND", .op = "GatherND", .domain = "", .rejects = RejectsGather}, .make = MakeKernel<GatherNd>},
    {.row = {.name = "cpu.GatherNDGrad", .op = "GatherNDGrad", .domain = "gradloom", .rejects = RejectsGatherGrad},
     .make = MakeKernel<GatherNdGrad>},
    {.row = {.name = "cpu.ScatterND", .op = "ScatterND", .domain = "", .rejects = RejectsScatter, .may_alias = kInPlace},
     .make = MakeKernel<ScatterNd>},
};

}  // namespace

std::span<const CpuKernel> CpuTupleIndexKernels() { return kKernels; }

}  // namespace gradloom
