#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"

namespace gradloom {
namespace {

constexpr int64_t kElementsPerThread = 1 << 12;
constexpr int64_t kColumnGroup = 256;
// With fewer columns than a vector has lanes, columns up to this length are transposed to rows.
constexpr int64_t kFewColumns = 16, kLongestColumn = 4096;

// Softmax or log-softmax along one axis.
template <bool kLog>
class SoftmaxKernel : public Kernel {
 public:
  explicit SoftmaxKernel(const KernelCall& call) : loops_(BestLoops()) {
    const Shape& shape = call.inputs[0].shape;
    const int axis = shape.rank() == 0 ? 0 : *NormalAxis(call.attributes.Int("axis", -1), shape.rank());
    n_ = shape.rank() == 0 ? 1 : shape[axis];
    outer_ = Product(shape, 0, axis);
    inner_ = Product(shape, std::min(axis + 1, shape.rank()), shape.rank());
    threads_ = ThreadsFor(outer_ * n_ * inner_, kElementsPerThread, call.threads);
  }

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const float* x = static_cast<const float*>(inputs[0]);
    float* y = static_cast<float*>(outputs[0]);
    if (n_ == 0) return;
    const auto row = kLog ? loops_.log_softmax_row : loops_.softmax_row;
    if (inner_ == 1) {
      ParallelFor(outer_, threads_, [&](int64_t i) { row(x + i * n_, y + i * n_, n_); });
      return;
    }
    if (inner_ < kFewColumns && n_ <= kLongestColumn) {
      ParallelFor(outer_ * inner_, threads_, [&](int64_t i) {
        alignas(64) float column[kLongestColumn];
        const int64_t at = i / inner_ * n_ * inner_ + i % inner_;
        for (int64_t k = 0; k < n_; ++k) column[k] = x[at + k * inner_];
        row(column, column, n_);
        for (int64_t k = 0; k < n_; ++k) y[at + k * inner_] = column[k];
      });
      return;
    }
    const auto columns = kLog ? loops_.log_softmax_columns : loops_.softmax_columns;
    const int64_t groups = (inner_ + kColumnGroup - 1) / kColumnGroup;
    ParallelFor(outer_ * groups, threads_, [&](int64_t i) {
      float work[2 * kColumnGroup];
      const int64_t column = i % groups * kColumnGroup, at = i / groups * n_ * inner_ + column;
      columns(x + at, y + at, n_, inner_, std::min(kColumnGroup, inner_ - column), work);
    });
  }

 private:
  const Loops& loops_;
  int64_t n_ = 0, outer_ = 0, inner_ = 0;
  int threads_ = 1;
};

std::string Rejects(const KernelCall& call) {
  const int rank = call.inputs[0].shape.rank();
  if (rank > 0 && !NormalAxis(call.attributes.Int("axis", -1), rank)) return "axis out of range";
  return RejectsAllBut(call, DType::kFloat32);
}

constexpr Aliasing kInPlace[] = {{0, 0}};

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.Softmax", .op = "Softmax", .domain = "", .rejects = Rejects, .may_alias = kInPlace},
     .make = MakeKernel<SoftmaxKernel<false>>},
    {.row = {.name = "cpu.LogSoftmax", .op = "LogSoftmax", .domain = "", .rejects = Rejects, .may_alias = kInPlace},
     .make = MakeKernel<SoftmaxKernel<true>>},
};

}  // namespace

std::span<const CpuKernel> CpuSoftmaxKernels() { return kKernels; }

}  // namespace gradloom
