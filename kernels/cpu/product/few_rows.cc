// MatMul and Gemm of few rows with a matrix that is read in place: predictions of one sample, or of a few. oneDNN packs the matrix at each
// call, which takes longer than multiplying.
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/product/long_product.h"
#include "kernels/cpu/product/matrix_product.h"

namespace gradloom {
namespace {

// Elements of the matrix, which are read from memory: a thread reads 64 KiB about as fast as others can be woken.
constexpr int64_t kElementsPerThread = 1 << 14;
constexpr int64_t kColumnUnit = 16;  // threads do not share cache lines of the result
// Longer sums of fewer columns are better divided than the columns.
constexpr int64_t kLongSum = 1 << 14, kFewColumns = 256;
constexpr int64_t kShort = 32;  // of fewer contiguous elements, too many are left over after whole vectors

// Each element of the result is summed in an order that depends only on the number of terms.
class FewRows : public Kernel {
 public:
  explicit FewRows(const KernelCall& call)
      : loops_(BestLoops()), product_(ProductOf(call)), threads_(ThreadsFor(product_.n * product_.k, kElementsPerThread, call.threads)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const MatrixProduct& p = product_;
    const MatrixArgs args{.m = p.m,
                          .n = p.n,
                          .k = p.k,
                          .a = static_cast<const float*>(inputs[0]),
                          .b = static_cast<const float*>(inputs[1]),
                          .a_row = p.a_row,
                          .a_col = 1,
                          .b_row = p.b_row,
                          .b_col = p.b_col,
                          .bias = p.has_bias ? static_cast<const float*>(inputs[2]) : nullptr,
                          .bias_step = p.bias_col,
                          .c = static_cast<float*>(outputs[0]),
                          .c_row = p.n,
                          .alpha = p.alpha,
                          .beta = p.beta,
                          .adds = false};
    ParallelRanges(p.n, kColumnUnit, threads_, [&](int64_t begin, int64_t end) { loops_.multiply_few_rows(args, begin, end); });
  }

 private:
  const Loops& loops_;
  MatrixProduct product_;
  int threads_;
};

std::string Rejects(const KernelCall& call) {
  if (std::string why = RejectsAllBut(call, DType::kFloat32); !why.empty()) return why;
  const MatrixProduct p = ProductOf(call);
  if (p.work() == 0) return "nothing to multiply";
  if (!p.batch.empty()) return "several matrices";
  if (p.m > kFewRows) return "many rows";
  if (p.k >= kLongSum && p.n < kFewColumns && LongProduct::Serves(p)) return "long sums of few columns";
  if (p.a_col != 1) return "rows that are not contiguous";
  if (p.b_row == 1 ? p.k < kShort : p.n < kShort) return "a matrix whose contiguous elements are few";
  if (p.b_row != 1 && p.m > 1) return "several rows with a matrix whose rows are contiguous";
  return p.has_bias && p.bias_row != 0 ? "an addend with rows" : "";
}

constexpr CpuKernel Row(std::string_view name, std::string_view op) {
  return {.row = {.name = name, .op = op, .domain = "", .rejects = Rejects}, .make = MakeKernel<FewRows>};
}

constexpr CpuKernel kKernels[] = {
    Row("cpu.few_rows.MatMul", "MatMul"),
    Row("cpu.few_rows.Gemm", "Gemm"),
};

}  // namespace

std::span<const CpuKernel> CpuFewRowsKernels() { return kKernels; }

}  // namespace gradloom
