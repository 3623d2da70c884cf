// CumSum: running sums along an axis, for several adjacent columns at once.
#include <algorithm>
#include <string>
#include <type_traits>

#include "kernels/cpu/families.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr int64_t kElementsPerThread = 1 << 14;
constexpr int64_t kColumns = 64;

class CumSum : public Kernel {
 public:
  explicit CumSum(const KernelCall& call)
      : shape_(call.inputs[0].shape),
        dtype_(call.inputs[0].dtype),
        axis_dtype_(call.inputs[1].dtype),
        exclusive_(call.attributes.Int("exclusive", 0) != 0),
        reverse_(call.attributes.Int("reverse", 0) != 0),
        threads_(ThreadsFor(shape_.elements(), kElementsPerThread, call.threads)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const int64_t given =
        axis_dtype_ == DType::kInt64 ? *static_cast<const int64_t*>(inputs[1]) : int64_t{*static_cast<const int32_t*>(inputs[1])};
    const auto axis = NormalAxis(given, shape_.rank());
    if (!axis) throw Error(ErrorCode::kAttr, "CumSum: axis " + std::to_string(given) + " is out of range");
    const auto run = [&]<typename T>(T) { Run(*axis, static_cast<const T*>(inputs[0]), static_cast<T*>(outputs[0])); };
    dtype_ == DType::kFloat32 ? run(float{}) : dtype_ == DType::kInt64 ? run(int64_t{}) : run(int32_t{});
  }

 private:
  // Integer sums wrap.
  template <typename T>
  using TotalOf = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;

  template <typename T>
  void Run(int axis, const T* x, T* y) const {
    const int64_t n = shape_[axis], inner = Product(shape_, axis + 1, shape_.rank());
    const int64_t groups = (inner + kColumns - 1) / kColumns;
    ParallelFor(Product(shape_, 0, axis) * groups, threads_, [&](int64_t i) {
      const int64_t column = i % groups * kColumns, width = std::min(kColumns, inner - column);
      const int64_t first = (i / groups * n + (reverse_ ? n - 1 : 0)) * inner + column, step = reverse_ ? -inner : inner;
      if (width == 1) return Line(x + first, step, n, y + first);
      Columns(x + first, step, n, width, y + first);
    });
  }

  template <typename T>
  void Line(const T* x, int64_t step, int64_t n, T* y) const {
    TotalOf<T> total = 0;
    for (int64_t j = 0; j < n; ++j) {
      const TotalOf<T> next = total + static_cast<TotalOf<T>>(x[j * step]);
      y[j * step] = static_cast<T>(exclusive_ ? total : next);
      total = next;
    }
  }

  template <typename T>
  void Columns(const T* x, int64_t step, int64_t n, int64_t width, T* y) const {
    TotalOf<T> totals[kColumns] = {};
    for (int64_t j = 0; j < n; ++j, x += step, y += step) {
      if (exclusive_) {
        for (int64_t c = 0; c < width; ++c) {
          const T element = x[c];
          y[c] = static_cast<T>(totals[c]);
          totals[c] += static_cast<TotalOf<T>>(element);
        }
      } else {
        for (int64_t c = 0; c < width; ++c) {
          totals[c] += static_cast<TotalOf<T>>(x[c]);
          y[c] = static_cast<T>(totals[c]);
        }
      }
    }
  }

  Shape shape_;
  DType dtype_, axis_dtype_;
  bool exclusive_, reverse_;
  int threads_;
};

std::string Rejects(const KernelCall& call) {
  const DType dtype = call.inputs[0].dtype, axis = call.inputs[1].dtype;
  if (dtype != DType::kFloat32 && dtype != DType::kInt64 && dtype != DType::kInt32) return std::string(DTypeName(dtype));
  if ((axis != DType::kInt64 && axis != DType::kInt32) || call.inputs[1].shape.elements() != 1) return "an axis that is not an integer";
  if (call.inputs[0].shape.rank() == 0) return "a scalar";
  return RejectsLayouts(call);
}

constexpr Aliasing kInPlace[] = {{0, 0}};

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.CumSum", .op = "CumSum", .domain = "", .rejects = Rejects, .may_alias = kInPlace}, .make = MakeKernel<CumSum>},
};

}  // namespace

std::span<const CpuKernel> CpuRunningKernels() { return kKernels; }

}  // namespace gradloom
