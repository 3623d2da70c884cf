// ArgMax and ArgMin of float32: the first or the last of equal elements. NaN precedes all other elements, and the first NaN wins.
#include <algorithm>
#include <climits>
#include <string>

#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"

namespace gradloom {
namespace {

constexpr int64_t kElementsPerThread = 1 << 14;
constexpr int64_t kColumns = 64;

template <bool kLargest>
class ArgExtreme : public Kernel {
 public:
  explicit ArgExtreme(const KernelCall& call)
      : reduce_(BestLoops().reduce_row[static_cast<size_t>(kLargest ? Reduction::kMax : Reduction::kMin)]),
        last_(call.attributes.Int("select_last_index", 0) != 0),
        threads_(ThreadsFor(call.inputs[0].shape.elements(), kElementsPerThread, call.threads)) {
    const Shape& shape = call.inputs[0].shape;
    const int axis = *NormalAxis(call.attributes.Int("axis", 0), shape.rank());
    outer_ = Product(shape, 0, axis);
    n_ = shape[axis];
    inner_ = Product(shape, axis + 1, shape.rank());
  }

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const auto* x = static_cast<const float*>(inputs[0]);
    auto* y = static_cast<int64_t*>(outputs[0]);
    if (inner_ == 1) return ParallelFor(outer_, threads_, [&](int64_t o) { y[o] = OfRow(x + o * n_); });
    const int64_t groups = (inner_ + kColumns - 1) / kColumns;
    ParallelFor(outer_ * groups, threads_, [&](int64_t i) {
      const int64_t o = i / groups, column = i % groups * kColumns;
      OfColumns(x + o * n_ * inner_ + column, std::min(kColumns, inner_ - column), y + o * inner_ + column);
    });
  }

 private:
  // Finds the extreme value, then its position.
  int64_t OfRow(const float* x) const {
    const float best = reduce_(x, n_);
    if (best != best) return std::find_if(x, x + n_, [](float v) { return v != v; }) - x;
    if (!last_) return std::find(x, x + n_, best) - x;
    int64_t at = n_ - 1;
    while (x[at] != best) --at;
    return at;
  }

  void OfColumns(const float* x, int64_t width, int64_t* y) const {
    float best[kColumns];
    int32_t place[kColumns] = {};
    std::copy_n(x, width, best);
    for (int64_t j = 1; j < n_; ++j) {
      const float* row = x + j * inner_;
      const auto at = static_cast<int32_t>(j);
      for (int64_t c = 0; c < width; ++c) {
        const float a = row[c], b = best[c];
        const bool beyond = (kLargest ? a > b : a < b) | (last_ & (a == b)) | ((a != a) & (b == b));
        best[c] = beyond ? a : b;
        place[c] = beyond ? at : place[c];
      }
    }
    std::copy_n(place, width, y);
  }

  float (*reduce_)(const float*, Index);
  bool last_;
  int threads_;
  int64_t outer_, n_, inner_;
};

std::string Rejects(const KernelCall& call) {
  if (call.inputs[0].dtype != DType::kFloat32) return std::string(DTypeName(call.inputs[0].dtype));
  const Shape& shape = call.inputs[0].shape;
  const auto axis = NormalAxis(call.attributes.Int("axis", 0), shape.rank());
  if (!axis || shape[*axis] == 0 || shape[*axis] > INT_MAX) return "an axis out of range";
  return RejectsLayouts(call);
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.ArgMax", .op = "ArgMax", .domain = "", .rejects = Rejects}, .make = MakeKernel<ArgExtreme<true>>},
    {.row = {.name = "cpu.ArgMin", .op = "ArgMin", .domain = "", .rejects = Rejects}, .make = MakeKernel<ArgExtreme<false>>},
};

}  // namespace

std::span<const CpuKernel> CpuArgExtremeKernels() { return kKernels; }

}  // namespace gradloom
